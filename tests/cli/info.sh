#!/bin/bash
# info.sh - headlight info: the screen, tensors, JSON, and files that cannot be opened.
set -u
# shellcheck source=tests/cli/lib.bash
. "$(dirname "$0")/lib.bash"
models=tests/data/families
plan 29

run info $models/llama3
# tests/test_session_memory.c tests the memory of sessions.
sed -i -E 's/^(  memory       )[0-9.]+ .iB for (.*work ).*/\1N for \2N/' "$scratch/out"
expect "a folder of shards" 0 <<'END'
llama3                                        decoder, family llama, safetensors

  parameters   127,424
  stored as    BF16       29 tensors   248.9 KiB
  layers       3 of width 64
  heads        4 heads × 16 dimensions, sharing 2 KV heads
  MLP          128, silu, gated
  norms        RMSNorm before attention and MLP
  positions    rope, theta 500000, llama3
  context      128 tokens
  vocabulary   256, the output head is the embedding
  tokenizer    none found; name one with --tokenizer PATH
  tokens       begin 0, end 1
  KV cache     384 bytes per token in f16, 768 bytes in f32
  memory       N for 128 tokens: weights 248.9 KiB, f16 cache 48.0 KiB, work N
END

run info tests/data/gguf/llama3.gguf
expect_line "a GGUF file" 0 '^llama3.gguf +decoder, family llama, gguf$'
expect_line "the same parameters" 0 '^  parameters   127,424$'
expect_line "more than one type" 0 '^               BF16       22 tensors   248.0 KiB$'

run info $models/gpt_neox/model.safetensors
expect_line "a file in its folder" 0 '^  norms        LayerNorm before attention and MLP, which run in parallel$'

run info models/demo
expect_line "the tokenizer beside the weights" 0 '^  tokenizer    BPE, 4,096 pieces$'
expect_line "special tokens, spelled out" 0 '^  tokens       begin 0 <\|endoftext\|>, end 0 <\|endoftext\|>$'

run info --tokenizer models/demo $models/phi3
expect_line "a tokenizer from elsewhere" 0 '^  tokenizer    BPE, 4,096 pieces$'

run info --context 16 $models/phi3
expect_line "memory for a shorter context" 0 '^  memory .* for 16 tokens: '
run info --context 1000 models/demo
expect_line "a context longer than the model's" 4 "a context of 1000 tokens exceeds the model's limit of 512"

run info --tokenizer "$scratch/nothing" $models/phi3
expect_line "no such tokenizer" 3 "^headlight info: $scratch/nothing: "

run info --tensors $models/phi3
expect_line "tensors have roles" 0 '^attn.qkv +no  F16 +128,64 +16384  model.layers.0.self_attn.qkv_proj.weight$'
widest=$(awk '{ if (length > n) n = length } END { print n }' "$scratch/out")
result "within 100 columns, names of tensors and all" "$([ "$widest" -le 100 ] && echo yes)"

run info --csv --tensors $models/phi3
expect_line "--csv --tensors" 0 '^attn.qkv,false,F16,"128,64",16384,model.layers.0.self_attn.qkv_proj.weight'
run info --csv $models/phi3
expect_line "--csv alone" 2 '^headlight info: --csv needs --tensors'
run info --json --tensors $models/starcoder2
expect_line "--json is an object" 0 '^ "n_params": 104448,$'
expect_line "--json has layers" 0 '^   "n_kv_heads": 2,$'
expect_line "--json has tensors" 0 '^   "role": "mlp.up",$'

run info --quiet $models/phi3
expect "--quiet says nothing" 0 </dev/null

run info
expect "no model" 2 <<'END'
headlight info: give one MODEL; got 0
Try 'headlight info --help'.
END

run info "$scratch/nothing"
expect_line "no such model" 3 "^headlight info: .*$scratch/nothing"

# transformers' AutoModel saves a model with a separate head without that head.
mkdir "$scratch/headless"
sed "s/GPTNeoXForCausalLM/GPTNeoXModel/" $models/gpt_neox/config.json >"$scratch/headless/config.json"
python3 - $models/gpt_neox/model.safetensors "$scratch/headless/model.safetensors" <<'END'
import json, struct, sys
data = open(sys.argv[1], "rb").read()
size = struct.unpack("<Q", data[:8])[0]
header, body, kept = json.loads(data[8:8 + size]), data[8 + size:], b""
header.pop("embed_out.weight")
header = {name.replace("gpt_neox.", ""): about for name, about in header.items()}
for name, about in header.items():
    if name != "__metadata__":
        begin, end = about["data_offsets"]
        about["data_offsets"] = [len(kept), len(kept) + end - begin]
        kept += body[begin:end]
text = json.dumps(header).encode()
open(sys.argv[2], "wb").write(struct.pack("<Q", len(text)) + text + kept)
END
run info $models/gpt_neox
expect_line "an output head of its own" 0 '^  vocabulary   [0-9,]+, the output head is a matrix of its own$'
run info "$scratch/headless"
expect_line "no output head" 0 '^  vocabulary   [0-9,]+, no output head: no logits, no loss$'
run info --json "$scratch/headless"
expect_line "no output head, in JSON" 0 '^ "has_head": false,$'

HF_HOME=$scratch run info gpt2
expect "a name of Hugging Face is not a path" 3 <<END
headlight info: gpt2: No such file or directory; a model is a local file or folder, and the Hugging Face cache, $scratch/hub, has none of that name
END

mkdir "$scratch/model"
cp $models/phi3/model.safetensors "$scratch/model"
sed 's/"model_type": "phi3"/"model_type": "qwen9"/' $models/phi3/config.json >"$scratch/model/config.json"
run info "$scratch/model"
expect_line "an unknown family" 3 "config.json: model_type 'qwen9' is not a family that headlight knows; the nearest is 'qwen2'.  doc/families.md lists all."
expect_line "what can be done then" 3 "measure --attn"

sed 's/"intermediate_size": 128/"intermediate_size": 96/' $models/phi3/config.json >"$scratch/model/config.json"
run info "$scratch/model"
expect "a tensor of another shape" 3 <<END
headlight info: $scratch/model: tensor 'model.layers.0.mlp.gate_up_proj.weight' has shape [256,64], wanted [192,64]
END

sed 's/"num_attention_heads": 4/"num_attention_heads": -4/' $models/phi3/config.json >"$scratch/model/config.json"
run info "$scratch/model"
expect "a number out of range" 3 <<END
headlight info: $scratch/model/config.json: 'num_attention_heads' is -4, wanted 1 to 4096
END
finish
