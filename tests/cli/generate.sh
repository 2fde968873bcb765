#!/bin/bash
# generate.sh - headlight generate: texts, ends of texts, JSON, chats, and invalid input.
set -u
# shellcheck source=tests/cli/lib.bash
. "$(dirname "$0")/lib.bash"
export OMP_NUM_THREADS=1 # a token of a small model is too little work for two threads
shared=${HEADLIGHT_SHARED:-../shared}
plan 46

run generate models/demo 'He said' -n 12
expect "the likeliest tokens, one after the other" 0 <<'END'
, “I am not afraid of it, and I am
END

run generate models/demo 'He said' --max-tokens 12 --threads 2 --seed 5
expect "threads and seed change nothing without a temperature" 0 <<'END'
, “I am not afraid of it, and I am
END

run generate models/demo 'He said' -n 30 --stop ' of it' --stop nowhere
expect "--stop ends before its text" 0 <<'END'
, “I am not afraid
END

printf 'He said\n' >"$scratch/prompt"
run generate models/demo --prompt-file "$scratch/prompt" -n 4
expect "a prompt in a file" 0 <<'END'
, “I am
END

"$HEADLIGHT" generate models/demo -n 4 <"$scratch/prompt" >"$scratch/out" 2>"$scratch/err"
status=$?
expect "a prompt from standard input" 0 <<'END'
, “I am
END

run generate models/demo '' -n 3
expect_line "an empty prompt begins a text" 0 '^The Spe$'

run generate models/demo 'He said' --context 6
expect "a full context is said" 0 <<'END'
, “I am not
headlight generate: stopped: the context of 6 tokens is full; --context N allows more
END

run generate models/demo 'He said' --context 6 --quiet
expect "--quiet is the text alone" 0 <<'END'
, “I am not
END

run generate models/demo 'He said' -n 4 --stats
sed -i -E 's/[0-9]+\.[0-9]+/N/g; s/ +/ /g' "$scratch/err"
expect "--stats" 0 <<'END'
, “I am

 prompt 2 tokens N s N tokens/s
 generated 4 tokens N s N tokens/s
 ended by --max-tokens
END

sampled=(-n 10 --temperature 0.9 --top-k 50 --top-p 0.95 --min-p 0.01 --repeat-penalty 1.1)
run generate models/demo 'He said' "${sampled[@]}" --seed 1
cp "$scratch/out" "$scratch/one"
run generate models/demo 'He said' "${sampled[@]}" --seed 1 --threads 2
expect "a seed is a text, on one thread or two" 0 <"$scratch/one"
run generate models/demo 'He said' "${sampled[@]}" --seed 2
result "another seed is another text" "$(cmp -s "$scratch/one" "$scratch/out" || echo yes)"

run generate models/demo 'He said' -n 8 --repeat-penalty 1000 --repeat-last 64
result "a penalty keeps words from coming back" \
    "$([ "$(tr -s ' ' '\n' <"$scratch/out" | sort | uniq -d | wc -l)" -eq 0 ] && echo yes)"

run generate models/demo 'He said' -n 12 --cache f16
expect "keys and values in 16 bits" 0 <<'END'
, “I am not afraid of it, and I am
END

run generate models/demo 'He said' -n 2 --json
expect_line "--json: text" 0 '^ "text": ", “",$'
expect_line "--json: tokens" 0 '^   "id": 492,$'
expect_line "--json: why it ended" 0 '^ "stop": "length",$'
expect_line "--json: log-probabilities" 0 '^   "logprob": -1\.103'
expect_line "--json: entropy over the vocabulary" 0 '^   "entropy": 3.20699'
expect_line "--json: entropy of attention" 0 '^   "attention_entropy": 0.49535'

run generate models/demo 'He said' -n 30 --json --stop ' of it'
expect_line "--json: a text cut by --stop" 0 '^ "text": ", “I am not afraid",$'
expect_line "--json: and that it was" 0 '^ "stop": "stop",$'

run generate models/demo Hello -n 3 --chat --system 'Be brief.'
expect_line "--chat" 0 .

run generate models/demo 'He said' --system x
expect_line "--system alone" 2 '^headlight generate: --system needs --chat: the model has no chat template$'

# The demo with a chat template: the prompt is a turn, unless --raw is given.
chatty=$scratch/chatty
mkdir "$chatty"
cp models/demo/*.json models/demo/model.safetensors "$chatty"
cat >"$chatty/chat_template.jinja" <<'END'
{% for message in messages %}{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}
END
run generate models/demo Hello -n 3 --json
alone=$(grep '"prompt_tokens"' "$scratch/out")
expect_line "without a template the prompt is continued" 0 '^ "chat": null'
run generate "$chatty" Hello -n 3 --json
expect_line "with one it is a turn" 0 '^  "format": "template"$'
result "which is longer than the prompt" "$([ "$alone" != "$(grep '"prompt_tokens"' "$scratch/out")" ] && echo yes)"
run generate "$chatty" Hello -n 3 --raw --json
expect_line "--raw continues it" 0 '^ "chat": null'
result "as it is" "$([ "$alone" = "$(grep '"prompt_tokens"' "$scratch/out")" ] && echo yes)"
run generate "$chatty" Hello -n 3 --system 'Be brief.' --json
expect_line "--system needs no --chat there" 0 '^  "format": "template"$'
run generate "$chatty" Hello --raw --chat
expect_line "--raw and --chat" 2 '^headlight generate: --raw cannot be combined with --chat or --system$'
if have_terminal; then
    for option in '' --raw; do
        script -qec "$HEADLIGHT generate $chatty Hello -n 3 --no-monitor $option" /dev/null \
            </dev/null >"$scratch/out" 2>"$scratch/err"
        status=$?
        expect_line "on a terminal it says so ($option)" 0 \
            "headlight generate: ${option:+continuing the prompt as it is; without }${option:-using the model.s chat template}"
    done
else
    skipped "on a terminal it says so" "no terminal to be had"
    skipped "on a terminal --raw says so" "no terminal to be had"
fi
echo "{{ raise_exception('no ' ~ messages[0].content) }}" >"$chatty/chat_template.jinja"
run generate "$chatty" Hello -n 3 --json
expect_line "a template that refuses the prompt" 3 'chat template, line 1: TemplateError: no Hello$'

# A model whose first token ends the text.
run generate "$chatty" Hello -n 1 --raw --json
first=$(sed -n 's/^   "id": \([0-9]*\),/\1/p' "$scratch/out")
echo "{\"eos_token_id\": $first}" >"$chatty/generation_config.json"
run generate "$chatty" Hello --raw
expect "a text that ends at once says so" 0 <<'END'

headlight generate: no text: the first token was the model's end-of-text token; this model has a chat template, which --raw leaves out
END
run generate "$chatty" Hello --raw --json
expect_line "--json: so does the reason" 0 '^ "stop": "end",$'

# Tokens of another vocabulary in a copied configuration.
echo '{"bos_token_id": 50256, "eos_token_id": [50256, 0]}' >"$chatty/generation_config.json"
run info "$chatty"
expect_line "info shows ids beyond the vocabulary" 0 '^  tokens +end 0 .*, not used: 50256, beyond the vocabulary$'
run info "$chatty" --json
expect_line "--json: and lists them" 0 '^ "bos_id": -1,$|"bos_id": -1'
run generate "$chatty" '' --raw -n 3
expect_line "no text begins with one" 3 'the prompt is empty, and the model has no token to begin a text with; give a prompt$'
run generate models/demo a b
expect_line "two prompts" 2 'give one PROMPT; got 2 arguments'
run generate models/demo a --temperature -1
expect_line "a temperature below 0" 2 '^headlight generate: --temperature: -1 is not between 0 and 1000$'
run generate models/demo a --top-p x
expect_line "no number" 2 "^headlight generate: --top-p: 'x' is not a number$"
run generate models/demo a --stop ''
expect_line "an empty --stop" 2 'needs a text that is not empty'
run generate models/demo a --context 600
expect_line "more context than the model has" 4 \
    "a context of 600 tokens exceeds the model's limit of 512, the number of positions it was trained with"
head -c 3000 models/text/alice.txt >"$scratch/long"
run generate models/demo -f "$scratch/long"
expect_line "a prompt that does not fit" 4 'the prompt has [0-9]+ tokens, but a context of 512 has room for only 512'
run generate tests/data/families/phi3 a
expect_line "no tokenizer" 3 'no tokenizer.json in this folder \(name one with --tokenizer PATH\)'

# The text that llama2.c generates with this model, up to the context length in the file.
stories=$shared/models/stories260K
if [ -d "$stories" ] && [ -x /usr/bin/python3 ]; then
    /usr/bin/python3 -c '
import json, sys
print(json.load(open(sys.argv[1]))["greedy_text"], end="")' "$stories/golden_greedy.json" >"$scratch/story"
    run generate "$stories/derived-hf" '' -n 200 --tokenizer "$stories/tok512.bin" --quiet
    truncate -s -1 "$scratch/out"
    expect "llama2.c's greedy text" 0 <"$scratch/story"
else
    result "llama2.c's greedy text # SKIP no shared models or no Python" yes
fi
finish
