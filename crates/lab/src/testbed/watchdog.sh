# Ends the processes of a run that died without ending them. Its standard input is a pipe that only the run
# writes to.
#
#   $1      the directory of the run, removed afterwards
#   input   "+ PID" when a process was started, "- PID" when it has ended
#   end     the run is gone: kill what still runs (nothing of it holds anything but throw-away data)
#
# A run that ends in good order kills this script first, so nothing below the loop runs then.
pids=
while read -r what pid; do
    if [ "$what" = + ]; then
        pids="$pids $pid"
    else
        left=
        for other in $pids; do [ "$other" = "$pid" ] || left="$left $other"; done
        pids=$left
    fi
done

for pid in $pids; do kill -KILL "$pid" 2>/dev/null; done
rm -rf -- "$1"
