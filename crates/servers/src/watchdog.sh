# Ends a server whose owner died without ending it. Standard input is a pipe that only the owner writes to.
#
#   $1      the throw-away directory to remove afterwards, or empty
#   input   a line with the server's pid after its start; an empty line after its end
#   end     the owner has died: ask the server to end, kill it after 5 s, remove the directory
#
# An owner that ends normally kills this script first, so the code below the loop does not run then.
pid=
while read -r line; do pid=$line; done

if [ -n "$pid" ]; then
    kill -INT "$pid" 2>/dev/null
    tries=0
    while [ "$tries" -lt 50 ] && kill -0 "$pid" 2>/dev/null; do
        sleep 0.1
        tries=$((tries + 1))
    done
    kill -KILL "$pid" 2>/dev/null
fi
if [ -n "$1" ]; then rm -rf -- "$1"; fi
