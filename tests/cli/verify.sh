#!/bin/bash
# verify.sh - headlight verify: tables, JSON, files written, exit statuses.
set -u
# shellcheck source=tests/cli/lib.bash
. "$(dirname "$0")/lib.bash"
plan 31

run verify --backend scalar "$cases"/segments.safetensors
blur_numbers
expect "one case is a table" 0 <<'END'
segments           tolerance      scalar
  out              N.NeNNN rel   N.NeNNN   ok
  lse              N.NeNNN       N.NeNNN   ok
  entropy          N.NeNNN       N.NeNNN   ok
  renyi2           N.NeNNN       N.NeNNN   ok
  varentropy       N.NeNNN       N.NeNNN   ok
  entropy_nosink   N.NeNNN       N.NeNNN   ok
  peak             N.NeNNN       N.NeNNN   ok
  argmax           N.NeNNN       N.NeNNN   ok
  self             N.NeNNN       N.NeNNN   ok
  previous         N.NeNNN       N.NeNNN   ok
  first            N.NeNNN       N.NeNNN   ok
  segment_mass     N.NeNNN       N.NeNNN   ok
  dq               N.NeNNN rel   N.NeNNN   ok
  dk               N.NeNNN rel   N.NeNNN   ok
  dv               N.NeNNN rel   N.NeNNN   ok

1 case, 1 back end: all within tolerance
END

run verify --backend=scalar "$cases"/{one,odd_dim,full,gated}.safetensors
sed -i -E 's/0\.[0-9]{2}   [a-z_0-9]+ +ok/N.NN   OUTPUT ok/' "$scratch/out"
expect "more cases are a line each" 0 <<'END'
The largest error of each case, as a share of its tolerance:

case               scalar   worst
one                  N.NN   OUTPUT ok
odd_dim              N.NN   OUTPUT ok
full                 N.NN   OUTPUT ok
gated                N.NN   OUTPUT ok

4 cases, 1 back end: all within tolerance
END

run verify "$cases"/*.safetensors
expect_line "all cases on all back ends" 0 '^17 cases, [1-9] back ends?: all within tolerance$'
widest=$(awk '{ if (length > n) n = length } END { print n }' "$scratch/out")
result "within 80 columns" "$([ "$widest" -le 80 ] && echo yes)"

run verify -v --backend scalar "$cases"/{one,odd_dim,full,gated}.safetensors
result "--verbose brings the tables back" "$([ "$(grep -c tolerance "$scratch/out")" -eq 5 ] && echo yes)"

run verify --quiet "$cases"/one.safetensors
expect "--quiet says nothing" 0 </dev/null

run verify --csv --backend scalar "$cases"/one.safetensors
expect_line "--csv has a line for every output" 0 '^one,scalar,entropy_nosink,[0-9.e-]+,[0-9.e-]+,(true|false),true'
run verify --json --backend scalar "$cases"/one.safetensors
expect_line "--json is an object" 0 '^ "passed": true,$'
expect_line "--json holds every error" 0 '^     "output": "entropy_nosink",$'

run verify
expect "no case" 2 <<'END'
headlight verify: no CASE or MODEL given
Try 'headlight verify --help'.
END

run verify --backend abacus "$cases"/one.safetensors
expect_line "an unknown back end" 2 "^headlight verify: no back end 'abacus' on this machine; available: scalar"

HEADLIGHT_BACKEND=abacus run verify "$cases"/one.safetensors
expect_line "an unknown back end in the environment" 2 'HEADLIGHT_BACKEND: no back end .abacus.'

HEADLIGHT_CUDA_LIBRARY=$scratch/none.so run verify --device cuda "$cases"/one.safetensors
expect_line "no CUDA library" 3 '^headlight verify: cuda: libheadlight_cuda.so was not found; build it with make CUDA=1 '

# Any other library serves as a wrong one.
other=$(ldd "$HEADLIGHT" | awk '/libjansson/ { print $3 }')
HEADLIGHT_CUDA_LIBRARY=$other run verify --device cuda "$cases"/one.safetensors
expect_line "another library in its place" 3 '^headlight verify: cuda: .* another version; build it again \(interface [0-9]+ is needed\)$'

run verify --device cuda --backend scalar "$cases"/one.safetensors
expect_line "a device and a back end" 2 '^headlight verify: --device cuda and --backend cannot be combined$'

run verify --write "$scratch/written" "$cases"/one.safetensors "$cases"/full.safetensors
expect "--write with two cases" 2 <<'END'
headlight verify: --write takes one case; got 2
Try 'headlight verify --help'.
END

run verify "$cases"/nothing.safetensors "$cases"/one.safetensors
expect_line "a file that is not there: the others still run" 3 '^2 cases, .*: 1 could not be run$'

printf 'not a safetensors file' >"$scratch/junk.safetensors"
run verify --backend scalar "$scratch/junk.safetensors"
expect_line "a file that is something else" 3 "^headlight verify: $scratch/junk.safetensors: "

# The options are JSON inside JSON, so their quotes are escaped.
sed 's/"D\\": 1/"D\\": 2/' "$cases"/one.safetensors >"$scratch/bent.safetensors"
run verify --backend scalar "$scratch/bent.safetensors"
expect "a case that contradicts itself" 3 <<END
1 case, 1 back end: 1 could not be run
headlight verify: $scratch/bent.safetensors: tensor 'q' has shape [1,1,1,1], the case says [1,1,1,2]
END

# With another scale the inputs are valid, but the expected values are wrong.
sed 's/"scale\\": 1.0/"scale\\": 1.1/' "$cases"/one.safetensors >"$scratch/scaled.safetensors"
run verify --backend scalar --write "$scratch/written.safetensors" "$scratch/scaled.safetensors"
expect_line "over tolerance" 1 '^  lse +[^ ]+ +[^ ]+!  FAIL$'
result "written all the same" "$([ -s "$scratch/written.safetensors" ] && echo yes)"

run verify --backend scalar --quiet "$scratch/scaled.safetensors"
expect_line "--quiet still says what is wrong" 1 '^  lse on scalar: error 1\.1e-01, tolerance 2\.0e-05$'

run verify --backend scalar --threads 1 --write "$scratch/one.safetensors" "$cases"/gated.safetensors
HEADLIGHT_BACKEND=scalar run verify --threads 1 --write "$scratch/two.safetensors" "$cases"/gated.safetensors
result "--write takes the run-time choice" "$(cmp -s "$scratch/one.safetensors" "$scratch/two.safetensors" && echo yes)"
head -c 4000 "$scratch/one.safetensors" | tr ',' '\n' | grep -oaE '^[{"]*[a-z_0-9]+":\{"dtype":"[A-Z0-9]+"' |
    tr -d '{"' | sed 's/:dtype:/ /' | sort >"$scratch/out"
: >"$scratch/err"
expect "what --write stores" 0 <<'END'
argmax I64
dgates F64
dk F32
dq F32
dv F32
entropy F64
entropy_nosink F64
first F64
lse F64
out F32
peak F64
previous F64
renyi2 F64
self F64
varentropy F64
END

blocks=tests/data/quants/blocks.safetensors
run verify --backend scalar --write "$scratch/values.safetensors" "$blocks"
expect_line "quantized blocks are read exactly" 0 '^  Q4_K +0\.0e\+00 +0\.0e\+00   ok$'
result "--write stores their values" "$(grep -qa '"Q4_K.values":{"dtype":"F32"' "$scratch/values.safetensors" && echo yes)"

# The last byte of the file belongs to the last value of BF16.
cp "$blocks" "$scratch/blocks.safetensors"
printf '\x7f' | dd of="$scratch/blocks.safetensors" bs=1 seek=$(($(stat -c %s "$blocks") - 1)) conv=notrunc status=none
run verify --backend scalar "$scratch/blocks.safetensors"
expect_line "a value that differs" 1 '^  BF16 .*!  FAIL$'

# Chat templates: Jinja2 3.1.6 rendered the texts.
printf '{%% for m in messages %%}[{{ m.role }}] {{ m.content|trim }}\n{%% endfor %%}{{ x + 1 }}' >"$scratch/talk.jinja"
cat >"$scratch/talk.json" <<'END'
[{"messages": [{"role": "user", "content": " Hi "}], "add_generation_prompt": true, "options": {"x": 1}, "text": "[user] Hi\n2"},
 {"messages": [], "add_generation_prompt": true, "options": {"x": "a"}, "error": "TypeError: can only concatenate str (not \"int\") to str"}]
END
run verify "$scratch/talk.json" --write "$scratch/ours.json"
expect "a chat template" 0 <<'END'
talk                2 of 2 conversations are equal   ok
1 chat template: 2 of 2 conversations are equal
END
cp "$scratch/talk.jinja" "$scratch/ours.jinja"
run verify "$scratch/ours.json"
expect_line "what was written is read again" 0 '^1 chat template: 2 of 2 conversations are equal$'
sed -i 's/Hi\\n2/Hi\\n3/' "$scratch/talk.json"
run verify "$scratch/talk.json"
expect_line "a text that differs" 1 'conversation 0, byte 10: ours .*\[user\] Hi'
rm "$scratch/talk.jinja"
run verify "$scratch/talk.json"
expect_line "no template" 3 'talk.jinja'

finish
