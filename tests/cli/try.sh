#!/bin/bash
# try.sh - headlight try: models by name where other programs keep them, and a page that begins with what
# was found.
set -u
# shellcheck source=tests/cli/lib.bash
. "$(dirname "$0")/lib.bash"
plan 12

# Folders as Hugging Face, Ollama and LM Studio lay them out, with one model in each.
home=$scratch/home
model=$scratch/model.gguf
"$HEADLIGHT" prune models/demo --heads L0H0 --as gguf --no-timing --quiet -o "$model" 2>/dev/null ||
    cp tests/data/gguf/llama.gguf "$model"
digest=$(sha256sum "$model" | cut -d' ' -f1)
hub=$home/.cache/huggingface/hub/models--some--tiny/snapshots/1234
ollama=$home/.ollama/models
studio=$home/.lmstudio/models/maker/tiny-studio-GGUF
mkdir -p "$hub" "$ollama/manifests/registry.ollama.ai/library/small" "$ollama/blobs" "$studio"
cp "$model" "$hub/tiny.gguf"
cp "$model" "$ollama/blobs/sha256-$digest"
cat >"$ollama/manifests/registry.ollama.ai/library/small/7m" <<END
{"schemaVersion": 2, "layers": [
 {"mediaType": "application/vnd.ollama.image.license", "digest": "sha256:00", "size": 1},
 {"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:$digest", "size": 1}]}
END
cp "$model" "$studio/tiny-studio.Q8_0.gguf"
printf x >"$studio/mmproj-tiny.gguf"

# Starts `try` and asks its page for the model; prints the answer, or the message of the failure.
opened=$scratch/opened
cat >"$scratch/browser" <<END
#!/bin/sh
echo "\$1" >"$opened"
END
chmod +x "$scratch/browser"

try() {
    rm -f "$opened"
    env -u HF_HOME -u HF_HUB_CACHE -u XDG_CACHE_HOME -u OLLAMA_MODELS HOME="$home" BROWSER="$scratch/browser" \
        "$HEADLIGHT" try --max-tokens 1024 "$@" >"$scratch/url" 2>"$scratch/err" </dev/null &
    server=$!
    for _ in $(seq 600); do
        [ -s "$scratch/url" ] && break
        kill -0 $server 2>/dev/null || break
        sleep 0.1
    done
    url=$(cat "$scratch/url")
    [ -n "$url" ] && curl -sf "${url}v1/headlight/model" >"$scratch/answer"
    for _ in $(seq 50); do
        [ -s "$opened" ] && break
        [ -n "$url" ] || break
        sleep 0.1
    done
    kill -INT $server 2>/dev/null
    wait $server
}

# The answer in words: the path of the model, and the number of sentences and of examples.
told() {
    python3 - "$scratch/answer" <<'PYTHON'
import json, sys
model = json.load(open(sys.argv[1]))
print(model["path"].split("/")[-1], len(model["profile"]["summary"]), model["tokens"]["active"]["row"]["shape"])
PYTHON
}

try
result "without a model: the bundled one" "$([ "$(told)" = "demo 3 [8, 8, 3]" ] && echo yes)"
result "the browser is opened on the page" "$([ "$(cat "$opened")" = "$url" ] && echo yes)"
try some/tiny --no-browser
result "a name in the Hugging Face cache" "$(told | grep -q '^tiny.gguf 3' && echo yes)"
result "--no-browser opens none" "$([ ! -e "$opened" ] && echo yes)"
try small
result "a name in Ollama's folder" "$(told | grep -q "^sha256-$digest 3" && echo yes)"
try small:7m
result "a name with its tag" "$(told | grep -q "^sha256-$digest 3" && echo yes)"
try maker/tiny-studio-GGUF
result "a publisher's model in LM Studio's folder" "$(told | grep -q '^tiny-studio.Q8_0.gguf 3' && echo yes)"
try tiny-studio.Q8_0
result "a file there" "$(told | grep -q '^tiny-studio.Q8_0.gguf 3' && echo yes)"

run try small:other
expect_line "another tag is no model" 3 'small:other: no file or folder of that name, and no such model'
run try ../../etc/passwd/x
expect_line "a path that does not exist" 3 'no file or folder of that name'
printf '{"layers": [{"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:../../../x"}]}' \
    >"$ollama/manifests/registry.ollama.ai/library/small/bad"
status=0
HOME=$home "$HEADLIGHT" try small:bad >"$scratch/out" 2>"$scratch/err" </dev/null || status=$?
expect_line "a manifest whose digest is none" 3 'no such model'
run try a b
expect_line "one model" 2 'give one MODEL, or none; got 2'
