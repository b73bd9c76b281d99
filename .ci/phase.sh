# To be sourced: phase NAME COMMAND [ARGUMENT...] says what is being done, and every five seconds that it still is.

phase() {
    phase_name=$1
    shift
    echo "$phase_name" >&2
    (
        seconds=0
        while sleep 1 && kill -0 $$ 2>/dev/null; do # a killed script leaves nobody who goes on talking
            seconds=$((seconds + 1))
            [ $((seconds % 5)) -ne 0 ] || echo "$phase_name: $seconds s" >&2
        done
    ) &
    phase_ticker=$!
    phase_status=0
    "$@" || phase_status=$?
    kill "$phase_ticker" 2>/dev/null || :
    wait "$phase_ticker" 2>/dev/null || :
    return "$phase_status"
}
