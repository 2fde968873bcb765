#!/bin/bash
# make_exports.sh - writes pruned models of every family, to be opened by other software.
#
#     tools/interop/make_exports.sh [--gguf] OUT [FAMILIES]
#
# FAMILIES holds small checkpoints (default: golden/families of $HEADLIGHT_SHARED).  OUT must not
# exist; it gets
#
#     FAMILY_masked      heads zeroed
#     FAMILY_ragged      heads removed, layers differ: per_layer_config, and code beside it
#     FAMILY_uniform     heads removed, layers alike, if the family then needs no code
#     FAMILY_repaired    as ragged, with output projections solved again; also FAMILY_repaired_masked
#     FAMILY_means       as ragged, with means of removed heads in output biases (needs python3)
#     or, with --gguf, FAMILY_ragged.gguf and FAMILY_uniform.gguf
#
# Beside each model, expected_tokens.json and expected_logits.npy have token ids and the logits that
# headlight computes from the written model (for encoders, the last hidden states), for
# check_transformers.py.  Forms that a family cannot be written in are reported and left out.
set -eu

gguf=no
if [ "${1:-}" = --gguf ]; then
    gguf=yes
    shift
fi
out=${1:?usage: make_exports.sh OUT [FAMILIES]}
families=${2:-${HEADLIGHT_SHARED:-../shared}/golden/families}
headlight=${HEADLIGHT:-build/headlight}
logits=${LOGITS:-build/examples/logits}
ids=(5 42 79 116 153 190 27 64 101 138 175 12 49 86 123 160 197 34 71 108 145 182 19 56)

ragged=L0H2,L1H0,L1H3,L2H0,L2H1,L2H3
uniform=L0H1,L0H3,L1H1,L1H3,L2H1,L2H3

mkdir "$out"

expect() { # model folder-for-the-answers
    printf '[%s]\n' "$(IFS=,; echo "${ids[*]}")" >"$2/expected_tokens.json"
    "$logits" "$1" "$2/expected_logits.npy" "${ids[@]}"
}

write() { # family form name heads
    if "$headlight" prune "$families/$1" --as "$2" --heads "$4" -o "$out/$3" --quiet 2>"$out/why"; then
        expect "$out/$3" "$out/$3"
        echo "$3"
    else
        echo "$3: left out: $(sed 's/^headlight prune: //' "$out/why")"
    fi
}

write_gguf() { # family name heads
    if "$headlight" prune "$families/$1" --as gguf --heads "$3" -o "$out/$2.gguf" --quiet 2>"$out/why"; then
        "$logits" "$out/$2.gguf" "$out/$2.npy" "${ids[@]}"
        echo "$2.gguf"
    else
        echo "$2.gguf: left out: $(sed 's/^headlight prune: //' "$out/why")"
    fi
}

# Writes a tokenizer of 256 bytes: the small checkpoints have none, and --mean needs text.
write_tokenizer() { # file
    python3 - "$1" <<'END'
import json, sys
plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
spelled = {byte: chr(byte) for byte in plain}
spelled.update((b, chr(256 + i)) for i, b in enumerate(b for b in range(256) if b not in plain))
json.dump({"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False},
           "model": {"type": "BPE", "merges": [], "vocab": {spelled[b]: b for b in range(256)}}},
          open(sys.argv[1], "w"))
END
}

write_fitted() { # family name form option...
    local family=$1 name=$2 form=$3
    shift 3
    if "$headlight" prune "$families/$family" --as "$form" --heads "$ragged" "$@" --text models/text/alice.txt \
        --max-tokens 512 --tokenizer "$out/tokenizer.json" -o "$out/$name" --quiet 2>"$out/why"; then
        expect "$out/$name" "$out/$name"
        echo "$name"
    else
        echo "$name: left out: $(sed 's/^headlight prune: //' "$out/why")"
    fi
}

write_folders() { # family
    write "$1" masked "$1_masked" "$ragged"
    write "$1" compact "$1_ragged" "$ragged"
    write "$1" compact "$1_uniform" "$uniform"
    if [ -e "$out/tokenizer.json" ]; then
        write_fitted "$1" "$1_means" compact --mean
        write_fitted "$1" "$1_repaired" compact --repair attention
        write_fitted "$1" "$1_repaired_masked" masked --repair attention
    fi
    # A uniform model that needs code tests nothing that the ragged one does not.
    if compgen -G "$out/$1_uniform/modeling_*.py" >/dev/null; then
        rm -r "${out:?}/$1_uniform"
    fi
}

if [ "$gguf" = no ] && command -v python3 >/dev/null; then
    write_tokenizer "$out/tokenizer.json"
fi
for path in "$families"/*/; do
    family=$(basename "$path")
    if [ "$gguf" = yes ]; then
        write_gguf "$family" "${family}_ragged" "$ragged"
        write_gguf "$family" "${family}_uniform" "$uniform"
    else
        write_folders "$family"
    fi
done

# If the heads do not divide the width, a Llama must be written as a Mistral.
stories=$families/../../models/stories260K/derived-hf
if [ "$gguf" = no ] && [ -d "$stories" ]; then
    "$headlight" prune "$stories" --as compact --quiet -o "$out/stories260K_uniform" \
        --heads L0H0,L0H1,L1H0,L1H1,L2H0,L2H1,L3H0,L3H1,L4H0,L4H1
    expect "$out/stories260K_uniform" "$out/stories260K_uniform"
    echo stories260K_uniform
fi
rm -f "$out/why" "$out/tokenizer.json"
du -sk "$out" | awk '{ printf "%.1f MiB in all\n", $1 / 1024 }'
