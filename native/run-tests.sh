#!/bin/sh
# Runs test programs one after the other and says in one last line how it went.
#
#   [UNDER=command] run-tests.sh SECONDS PROGRAM...
#
# A program that hangs is ended after SECONDS and counts as failed. The output of
# those that pass is not shown: what is wrong should not have to be searched for.
set -u

seconds=$1
shift
[ $# -gt 0 ] || { echo "no test programs: nothing was tested" >&2; exit 1; }

limit=
command -v timeout >/dev/null 2>&1 && limit="timeout -k 5 $seconds"
output=$(mktemp "${TMPDIR:-/tmp}/peerage-test.XXXXXX")
trap 'rm -f "$output"' EXIT
trap 'exit 1' HUP INT TERM

failed=0
cases=0
for program in "$@"; do
    # $limit and $UNDER are commands with their arguments, or nothing
    # shellcheck disable=SC2086
    $limit ${UNDER:-} "$program" >"$output" 2>&1
    status=$?
    passed=$(grep -c '\[       OK \]' "$output")
    if [ $status -eq 0 ] && [ "$passed" -gt 0 ]; then
        echo "ok      ${program##*/}: $passed cases"
        cases=$((cases + passed))
    else
        failed=$((failed + 1))
        cat "$output"
        case $status in
        0) echo "FAILED  ${program##*/}: no case ran" ;;
        124 | 137) echo "FAILED  ${program##*/}: not done after $seconds s" ;;
        *) echo "FAILED  ${program##*/}: status $status" ;;
        esac
    fi
done

if [ $failed -gt 0 ]; then
    echo "$failed of $# test programs failed"
    exit 1
fi
echo "$# test programs with $cases cases passed"
