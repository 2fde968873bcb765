#!/bin/bash
# memory.sh - --max-memory: work that does not fit is refused with numbers before it begins.
set -u
# shellcheck source=tests/cli/lib.bash
. "$(dirname "$0")/lib.bash"
export OMP_NUM_THREADS=1
plan 34

model=models/demo
text=$scratch/text.txt
head -c 2000 models/text/alice.txt >"$text"
refusal="$model: [0-9.]+ [MG]iB of memory for [0-9]+ tokens \(weights 14\.3 MiB, cache [0-9.]+ [KMG]iB, work [0-9.]+ [KMG]iB, held already [0-9.]+ [KM]iB\), at most 10\.0 MiB"

for command in "generate $model Hello" "eval $model $text" "measure $model $text -o $scratch/p" \
    "tokens $model Hello" "serve $model --port 0"; do
    # shellcheck disable=SC2086 # the words of a command
    run $command --max-memory 10M
    expect_line "${command%% *} with 10M" 4 "^headlight ${command%% *}: $refusal"
done
result "and nothing is written" "$([ ! -e "$scratch/p" ] && [ ! -e "$scratch/p.part" ] && echo yes)"

run generate "$model" Hello -n 2 --max-memory none --quiet
expect_line "none: whatever the system gives" 0 .
run generate "$model" Hello -n 2 --max-memory 2G --quiet
expect_line "enough" 0 .
run generate "$model" Hello --max-memory 2Q
expect "no size" 2 <<'EOF'
headlight generate: --max-memory: '2Q' is not a size such as 8G or 500M, nor none
Try 'headlight generate --help'.
EOF

# Commands without a model are limited too: profiles, tables, figures, reports, vocabularies.
profile=$scratch/profile
run measure "$model" "$text" --context 64 -o "$profile" --quiet
beyond="[0-9]+ more bytes of memory are needed beside the [0-9]+ in use, but the limit is 524288; --max-memory sets it"
for command in "show $profile" "rank $profile" "compare $profile $profile" "diagnose $profile" \
    "merge $profile $profile -o $scratch/new" "draw $profile -o $scratch/new.svg" \
    "report $profile -o $scratch/new.html" "sweep $model --rank-text $text --test-text $text -o $scratch/new.svg" \
    "tokenize $model --json --decode [$(seq -s , 20000)]"; do
    # shellcheck disable=SC2086 # the words of a command
    run $command --max-memory 512K
    expect_line "${command%% *} with 512K" 4 "^headlight ${command%% *}: .*($beyond|out of memory for|at most 512.0 KiB)"
done
result "and nothing is written" "$(compgen -G "$scratch/*new*" >/dev/null || echo yes)"
run draw "$profile" -o "$scratch/new.png" --dpi 1000 --max-memory 64M
expect_line "pixels count" 4 "^headlight draw: [0-9]{9} more bytes of memory are needed"

# A pipe may be endless: the memory of the whole process stays below the limit, too.
peak() { # command...: exit status and MiB of the largest of all
    python3 -c 'import resource, subprocess, sys
code = subprocess.run(sys.argv[1:], stdin=sys.stdin, stdout=subprocess.DEVNULL).returncode
print(code, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024)' "$@" 2>"$scratch/err"
}
bounded() { # character name MiB command...
    local code peak
    read -r code peak < <(head -c 100000000 /dev/zero | tr '\0' "$1" | peak "$HEADLIGHT" "${@:4}" --max-memory "$3M")
    echo "# exit status $code, at most $peak MiB"
    result "$2" "$([ "$code" = 4 ] && [ "$peak" -lt $(($3 + 40)) ] && grep -q "the limit is $(($3 * 1048576));" "$scratch/err" && echo yes)"
}
bounded a "100 MB of text" 20 tokenize "$model"
bounded '[' "a line of 100 MB" 20 tokenize "$model" --json
bounded a "a document of 100 MB" 60 eval "$model" -

# A server continues: requests that do not fit are refused, others are answered.
result "a request that takes too much, and others" "$([ "$(python3 -B tests/serve/memory.py 2>&1)" = fine ] && echo yes)"
# Endless input is not read forever, and a pipe without a writer does not block.
endless='more than 256 MiB; use a file instead$'
try() { # seconds, arguments...
    timeout "$1" "$HEADLIGHT" "${@:2}" >"$scratch/out" 2>"$scratch/err"
    status=$?
}
try 60 generate "$model" --prompt-file /dev/zero </dev/null
expect_line "a prompt without an end" 4 "^headlight generate: /dev/zero: $endless"
try 60 eval "$model" /dev/zero </dev/null
expect_line "a text without an end" 4 "^headlight eval: /dev/zero: $endless"
try 60 tokenize "$model" </dev/zero
expect_line "standard input without an end" 4 "^headlight tokenize: standard input: $endless"
try 60 tokenize "$model" --json </dev/zero
expect_line "a line without an end" 4 "^headlight tokenize: standard input: $endless"
yes | timeout 60 "$HEADLIGHT" generate "$model" >"$scratch/out" 2>"$scratch/err"
status=${PIPESTATUS[1]}
expect_line "a pipe without an end" 4 "^headlight generate: standard input: $endless"
try 60 measure "$model" - -o "$scratch/endless" </dev/zero
expect_line "a corpus without an end" 4 '^headlight measure: standard input: more than 268435456 bytes'
mkfifo "$scratch/pipe"
for command in "generate $model -f" "eval $model" "measure $model -o $scratch/endless"; do
    # shellcheck disable=SC2086 # the words of a command
    try 60 $command "$scratch/pipe" </dev/null
    expect_line "${command%% *}: a pipe that nobody writes to" 3 'pipe: is a pipe; give a file'
done
run generate "$model" -f <(echo Hello) -n 3 --quiet
expect_line "one that the shell opened is read" 0 .

finish
