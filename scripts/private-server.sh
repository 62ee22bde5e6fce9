# Functions for checks that use a real API, sourced by build-clients, prove-clients and check-api.
# scripts/python-tools installs the Python tools. `dispatchq dev` uses its own servers and data, which are removed at the end.

home=${XDG_CACHE_HOME:-$HOME/.cache}/dispatchq/$check
bin=$home/venv/bin

fail() { printf 'check-%s: %s\n' "$check" "$*" >&2; exit 1; }

# Starts PROGRAM with its own servers in $work, waits until the API answers, and sets $url: start_server PROGRAM
# [CONFIG], with the settings of the file CONFIG. The servers stop with the script. The checks send requests without a
# key, so the limit of wrong keys per address is raised.
start_server() {
    program=$(realpath "$1")
    # Under root, Postgres runs as another user, who needs access to its data.
    work=$(mktemp -d)
    chmod 711 "$work"
    if [[ -n ${2:-} ]]; then cp "$2" "$work/config.toml"; fi
    server=
    trap stop_server EXIT
    # The file must exist before it is read, however late the program starts.
    : >"$work/server.log"
    (cd "$work" && exec env DISPATCHQ_HTTP__ADMIN_BIND= DISPATCHQ_HTTP__FAILURES_PER_MIN_PER_ADDRESS=100000 "$program" dev --data data --bind 127.0.0.1:0 >server.log 2>&1) &
    server=$!
    # `dev` prints its address when it listens. If it neither prints it nor exits, this script stops after two minutes.
    url=
    local looks=0
    until [[ -n $url ]] && "$bin/python" -c 'import sys, urllib.request; urllib.request.urlopen(sys.argv[1])' "$url/readyz" 2>/dev/null; do
        kill -0 "$server" 2>/dev/null || { cat "$work/server.log" >&2; fail "dispatchq dev has exited"; }
        ((looks++ < 600)) || { cat "$work/server.log" >&2; fail "dispatchq dev does not listen after two minutes"; }
        url=$(sed -n 's|^API *\(http://[^/]*\)/.*|\1|p' "$work/server.log")
        sleep 0.2
    done
}

stop_server() {
    if [[ -n $server ]]; then
        kill "$server" 2>/dev/null || true
        wait "$server" 2>/dev/null || true
    fi
    rm -rf "$work"
}

# Prints a new key: make_key NAME ROLE OPTION ...
make_key() {
    local name=$1 role=$2
    shift 2
    "$program" --config "$work/data/config.toml" apikey create "$name" --role "$role" "$@" 2>/dev/null
}
