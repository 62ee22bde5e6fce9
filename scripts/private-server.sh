# For checks that ask a real API: sourced by check-client and check-api. Python's tools are installed by scripts/python-tools;
# `dispatchq dev` runs on servers and data of its own, which are gone at the end.

home=${XDG_CACHE_HOME:-$HOME/.cache}/dispatchq/$check
bin=$home/venv/bin

fail() { printf 'check-%s: %s\n' "$check" "$*" >&2; exit 1; }

# Starts PROGRAM with servers of its own in $work, and waits until the API answers; sets $url. Ends with the script. Requests without a
# key are part of the checks: the limit of wrong keys per address is out of their way.
start_server() {
    program=$(realpath "$1")
    # Postgres runs under another user where this one is root, who must get through to its data.
    work=$(mktemp -d)
    chmod 711 "$work"
    server=
    trap stop_server EXIT
    # There before it is looked at, however late the program begins.
    : >"$work/server.log"
    (cd "$work" && exec env DISPATCHQ_HTTP__ADMIN_BIND= DISPATCHQ_HTTP__FAILURES_PER_MIN_PER_ADDRESS=100000 "$program" dev --data data --bind 127.0.0.1:0 >server.log 2>&1) &
    server=$!
    # `dev` says where it listens, and begins to. Where it neither does nor ends, this does: after two minutes.
    url=
    local looks=0
    until [[ -n $url ]] && "$bin/python" -c 'import sys, urllib.request; urllib.request.urlopen(sys.argv[1])' "$url/readyz" 2>/dev/null; do
        kill -0 "$server" 2>/dev/null || { cat "$work/server.log" >&2; fail "dispatchq dev has ended"; }
        ((looks++ < 600)) || { cat "$work/server.log" >&2; fail "dispatchq dev does not begin to serve"; }
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
