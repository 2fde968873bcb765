#!/bin/bash
# usage.sh - commands, help, version, and errors in command lines.
set -u
# shellcheck source=tests/cli/lib.bash
. "$(dirname "$0")/lib.bash"
plan 26

run
expect "alone it prints the commands" 0 <<'END'
headlight: see what every attention head of a transformer looks at, how sharply, and
which heads can be removed, without ever building an attention matrix.

usage: headlight COMMAND [options] ...

  compare    compare two profiles or models, head by head
  damage     find the heads that make a changed model differ from its reference
  demo       measure, show and draw the two bundled models
  diagnose   check attention for problems, with evidence and remedies
  draw       draw a profile as SVG, PNG or PDF
  eval       score texts: perplexity, bits per byte, KL from a reference
  generate   generate text, colored by the entropy of attention
  head       print all that is known of one head, with examples
  info       describe a model: family, shape, types, memory
  judge      test whether the entropy of generated text predicts errors
  lens       show what a model would predict after each layer
  measure    measure every head on texts, and write a profile
  merge      merge profiles of parts of a text into one
  needle     find what a model retrieves from a long text, and with which heads
  prune      write a model without some of its heads
  rank       list heads in pruning order
  report     write one interactive HTML page, which needs no network
  serve      run an OpenAI-compatible server with a live page
  show       print a profile: heatmap, layers, extremes, diagnoses, tables
  sweep      measure what disabling heads costs, for every ranker
  tokenize   print the tokens of a text, or the text of tokens
  tokens     show which token of a prompt looks at which
  try        find a model, measure it, and open its live page in a browser
  verify     run golden cases and models on every back end
  watch      measure checkpoints as they appear, and raise alarms

  help COMMAND    help for a command
  help metrics    the definition of every number
  --version       version and back ends of this build

Exit status: 0 success, 1 a check failed, 2 usage error, 3 bad input,
4 out of resources.
END
cp "$scratch/out" "$scratch/commands"

run --help
expect "--help does the same" 0 <"$scratch/commands"
run help
expect "so does help" 0 <"$scratch/commands"

run --version
expect_line "--version says which" 0 '^headlight [0-9]+\.[0-9]+\.[0-9]+$'
expect_line "--version lists back ends" 0 '^back ends on this CPU: scalar.*\(in use\)'

run vrify
expect "an unknown command, with a suggestion" 2 <<'END'
headlight: no command 'vrify' (did you mean 'verify'?)
Run 'headlight' to list the commands.
END

run frobnicate
expect "an unknown command, without one" 2 <<'END'
headlight: no command 'frobnicate'
Run 'headlight' to list the commands.
END

run help frobnicate
expect "help for an unknown command" 2 <<'END'
headlight: no command 'frobnicate'
Run 'headlight' to list the commands.
END

run verify --help
expect "help of a command" 0 <<'END'
usage: headlight verify [options] CASE.safetensors... | NAME.json... | MODEL...

Runs golden cases on every back end that this CPU has, and prints the largest error
of each output beside its tolerance.  A CASE is an attention case (forward and
backward) or a file of quantized blocks, NAME.blocks beside NAME.values, which must
match exactly.  Exit status 1 if an error exceeds its tolerance.

NAME.json is an array of conversations with the texts that another program
rendered of them, and NAME.jinja beside it the chat template.  All texts must be
equal, or refused with the same error.

A MODEL is a folder, a .gguf or a .bin.  Its tokens and expected outputs come from
expected.safetensors in the folder, or from --expected.  Without either, the fused
statistics of rows are compared with those of the same rows materialized in double
precision.

With --off or --gates, logits are compared with masked_logits if those were made
with the same heads disabled; else rows are compared as without a file.

--write stores the outputs of --backend, or of the back end that would be chosen at
run time, under the case's own tensor names; it takes one case.  For NAME.json it
stores the rendered texts in the same form.

options:
      --backend NAME        verify only this back end (scalar, avx2, avx512,
                            neon)
      --write FILE          store the outputs of the chosen back end
      --expected FILE       expected outputs of a model
      --chunk N             feed a model N tokens at a time
      --decode              feed a model one token at a time
  -v, --verbose             print the table of every case
      --csv                 print a line of CSV for each output of each back end
      --gates FILE          multiply the outputs of heads: JSON, safetensors
      --off L5H1,L7         disable these heads for this run

options of every command:
      --json                print JSON instead of text
  -q, --quiet               print errors only
      --threads N           use N threads (all cores)
      --seed N              seed of random numbers (0)
      --device cpu|cuda|cuda:f16|cuda:f32  
                            where to compute (cpu); cuda computes in bf16
      --math f32|bf16|int8  how the CPU multiplies weights (f32, which is exact)
      --no-repack           no copies of weights for faster products: less
                            memory
      --max-memory SIZE     memory limit: 8G, 500M, none (all free memory)
      --color auto|always|never|256|truecolor  
                            colors in the terminal (auto)
  -h, --help                print this help
END
cp "$scratch/out" "$scratch/verify"
run help verify
expect "help COMMAND does the same" 0 <"$scratch/verify"

run verify --jsn
expect "an unknown option, with a suggestion" 2 <<'END'
headlight verify: unknown option --jsn (did you mean --json?)
Try 'headlight verify --help'.
END

run verify -x
expect "an unknown letter" 2 <<'END'
headlight verify: unknown option -x
Try 'headlight verify --help'.
END

run verify --threads
expect "a missing value" 2 <<'END'
headlight verify: --threads needs a value: N
Try 'headlight verify --help'.
END

run verify --threads=two
expect "not a number" 2 <<'END'
headlight verify: --threads: 'two' is not a whole number
Try 'headlight verify --help'.
END

run verify --threads 0
expect "a number out of range" 2 <<'END'
headlight verify: --threads: 0 is not between 1 and 1024
Try 'headlight verify --help'.
END

run verify --json=yes
expect "a value for a flag" 2 <<'END'
headlight verify: --json takes no value; got 'yes'
Try 'headlight verify --help'.
END

run verify --device tpu
expect "not one of the choices" 2 <<'END'
headlight verify: --device: 'tpu' is not one of cpu|cuda|cuda:f16|cuda:f32 (did you mean 'cpu'?)
Try 'headlight verify --help'.
END

run info --device cuda models/demo
expect "a command that has no use for a GPU" 2 <<'END'
headlight info: --device cuda: this command runs on the CPU only
Try 'headlight info --help'.
END

run verify -- --json
expect_line "after -- nothing is an option" 3 '^headlight verify: --json: No such file or directory$'

if [ -e /dev/full ]; then
    "$HEADLIGHT" --version >/dev/full 2>"$scratch/err"
    status=$?
    : >"$scratch/out"
    expect "a full disk is not success" 4 <<'END'
headlight: cannot write the output
END
else
    result "a full disk is not success # SKIP no /dev/full" yes
fi
# ---------------------------------------------------------------- in every command

run --version --json
expect_line "--version --json is an object" 0 '^ "backend": "[a-z0-9]+"$'
missing=
for command in $("$HEADLIGHT" help --table | awk -F'\t' '$1 == "command" { print $2 }'); do
    for option in --color --colour; do
        run "$command" $option=alway
        grep -q "did you mean 'always'?" "$scratch/err" || missing="$missing $command $option"
        run "$command" $option=always --help
        [ "$status" -eq 0 ] || missing="$missing $command $option=always"
    done
done
echo "# without:$missing"
result "--color and --colour" "$([ -z "$missing" ] && echo yes)"

# Each word of each option with choices, misspelled with its last letter doubled.
wrong=
while IFS=$'\t' read -r _ command _ option _ choices _; do
    word=${choices%%|*}
    run "$command" "--$option" "$word${word: -1}"
    grep -qF "did you mean '$word'?" "$scratch/err" || wrong="$wrong $command --$option"
done < <("$HEADLIGHT" help --table | awk -F'\t' '$5 == "choice"')
echo "# without a suggestion:$wrong"
result "a suggestion for every choice" "$([ -z "$wrong" ] && echo yes)"

run diagnose nothing --fail-on colapse
expect_line "part of a diagnosis' name" 2 "no diagnosis is called 'colapse' \\(did you mean 'entropy-collapse'\\?\\)"
run watch nothing --figure entrpy
expect_line "a figure of watch" 2 "did you mean 'entropy'\\?"
run verify $cases/gqa.safetensors --color always
result "--color always, to a file" "$(grep -q $'\x1b\\[' "$scratch/out" && echo yes)"
finish
