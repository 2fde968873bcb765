"""Every route, streamed and not, for a well-behaved client."""

import json
import math
import os
import subprocess
import tempfile
import threading

from client import Server, Tap, equal

tap = Tap()
server = Server("--slots", "4", "--context", "256")
PROMPT = {"prompt": "He said", "max_tokens": 12, "temperature": 0}
TEXT = ", \u201cI am not afraid of it, and I am"


def student_quantile(freedom):
    """What Student's t exceeds with a probability of 0.025, from its density."""
    scale = math.gamma((freedom + 1) / 2) / math.gamma(freedom / 2) / math.sqrt(freedom * math.pi)
    t, step, below = 0.0, 1e-4, 0.5
    while below < 0.975:
        below += step * scale * (1 + (t + step / 2) ** 2 / freedom) ** (-(freedom + 1) / 2)
        t += step
    return t


def generated(*options):
    """The same result from `headlight generate`."""
    program = os.environ.get("HEADLIGHT", "build/headlight")
    return json.loads(subprocess.run([program, "generate", "models/demo", "--json", "--threads",
                                      "1", *options], capture_output=True, check=True).stdout)


def complete(**more):
    status, data = server.post("/v1/completions", dict(PROMPT, **more))
    assert status == 200, data
    return data


def chat(**more):
    body = {"messages": [{"role": "user", "content": "He said"}], "max_tokens": 4,
            "temperature": 0}
    status, data = server.post("/v1/chat/completions", dict(body, **more))
    assert status == 200, data
    return data


def health():
    equal(server.ask("GET", "/health")[2], {"status": "ok"})


def models():
    data = server.ask("GET", "/v1/models")[2]
    equal([data["object"], data["data"][0]["id"], data["data"][0]["object"]],
          ["list", "demo", "model"])


def about():
    data = server.ask("GET", "/v1/headlight/model")[2]
    equal([data["n_layers"], data["n_heads"], len(data["layers"]), data["n_ctx"], data["slots"]],
          [8, 8, 8, 256, 4])
    equal(data["path"], os.path.realpath("models/demo"))


def path_for_strangers():
    """Clients from other machines, or behind a proxy, only get the last part of the model's path."""
    for options in (["--allow-host", "proxy.example"], ["--host", "0.0.0.0", "--token", "sesame"]):
        other = Server("--context", "64", "--slots", "1", *options)
        try:
            status, _, data = other.ask("GET", "/v1/headlight/model",
                                        headers={"Authorization": "Bearer sesame"})
            equal([status, data["path"]], [200, "demo"])
        finally:
            other.close()


def page():
    status, headers, data = server.ask("GET", "/")
    equal(status, 200)
    assert b"<html" in data.lower() or b"<!doctype html" in data.lower()
    assert b'id="headlight-data">null</script>' in data
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    equal(server.ask("GET", "/favicon.ico")[0], 204)


def head():
    status, headers, data = server.ask("HEAD", "/health")
    equal([status, data], [200, b""])


def completion():
    data = complete()
    equal(data["object"], "text_completion")
    equal(data["choices"][0]["text"], TEXT)
    equal(data["choices"][0]["finish_reason"], "length")
    equal(data["usage"], {"prompt_tokens": 2, "completion_tokens": 12, "total_tokens": 14})
    assert data["id"].startswith("cmpl-") and isinstance(data["created"], int)


def same_as_generate():
    wanted = generated("He said", "-n", "40", "-t", "0.9", "--top-p", "0.8", "--seed", "11")
    data = complete(max_tokens=40, temperature=0.9, top_p=0.8, seed=11,
                    headlight={"entropy": True})
    equal(data["choices"][0]["text"], wanted["text"])
    for seen, token in zip(data["choices"][0]["headlight"]["tokens"], wanted["tokens"]):
        equal(seen["id"], token["id"])
        for name in ("logprob", "entropy", "varentropy", "attention_entropy"):
            assert math.isclose(seen[name], token[name], rel_tol=1e-4, abs_tol=1e-5), (seen, token)


def spikes():
    prompt = "It was a dark and stormy night, and he said to her that he would not go there."
    with tempfile.TemporaryDirectory() as folder:
        trace = os.path.join(folder, "spikes.jsonl")
        generated(prompt, "-n", "24", "--trace", trace)
        with open(trace) as lines:
            wanted = [json.loads(line) for line in lines]
    wanted = [entry["spike"] for entry in wanted if entry.get("kind") == "generated"]
    data = complete(prompt=prompt, max_tokens=24, headlight={"entropy": True})
    seen = [token["spike"] for token in data["choices"][0]["headlight"]["tokens"]]
    equal(len(seen), len(wanted))
    assert any(value is not None for value in seen), seen
    for ours, theirs in zip(seen, wanted):
        assert (ours is None) == (theirs is None), (seen, wanted)
        assert ours is None or math.isclose(ours, theirs, rel_tol=1e-3, abs_tol=1e-3), (ours, theirs)


def stream():
    chunks = server.stream("/v1/completions", dict(PROMPT, stream_options={"include_usage": True}))
    equal("".join(chunk["choices"][0]["text"] for chunk in chunks[:-1]), TEXT)
    equal([chunk["choices"][0]["finish_reason"] for chunk in chunks[:-1]],
          [None] * (len(chunks) - 2) + ["length"])
    equal(chunks[-1]["choices"], [])
    equal(chunks[-1]["usage"]["completion_tokens"], 12)
    assert all(chunk["usage"] is None for chunk in chunks[:-1])
    assert len({chunk["id"] for chunk in chunks}) == 1


def chat_whole():
    data = chat()
    equal(data["object"], "chat.completion")
    equal(data["choices"][0]["message"]["role"], "assistant")
    assert data["choices"][0]["message"]["content"]
    equal(data["usage"]["completion_tokens"], 4)
    assert "ignored" not in data


# Calls of tools and their results reach the template; a member that is not known is named.
def chat_tools():
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{\"x\": 1}"}}
    data = chat(messages=[{"role": "user", "content": "He said"},
                          {"role": "assistant", "content": None, "tool_calls": [call]},
                          {"role": "tool", "tool_call_id": "1", "content": "5"}],
                tools=[{"type": "function", "function": {"name": "f"}}], my_member=1)
    assert data["choices"][0]["message"]["content"]
    equal(data["ignored"], ["my_member"])


def chat_stream():
    whole = chat()["choices"][0]["message"]["content"]
    body = {"messages": [{"role": "developer", "content": [{"type": "text", "text": "Be"}]},
                         {"role": "user", "content": "He said"}], "max_completion_tokens": 4,
            "temperature": 0}
    chunks = server.stream("/v1/chat/completions", body)
    equal(chunks[0]["object"], "chat.completion.chunk")
    equal(chunks[0]["choices"][0]["delta"]["role"], "assistant")
    equal(chunks[-1]["choices"][0]["delta"], {})
    equal(chunks[-1]["choices"][0]["finish_reason"], "length")
    body["messages"].pop(0)
    chunks = server.stream("/v1/chat/completions", body)
    equal("".join(c["choices"][0]["delta"].get("content", "") for c in chunks), whole)


def logprobs():
    shown = complete(max_tokens=3, logprobs=2)["choices"][0]["logprobs"]
    equal(shown["tokens"], [",", " \u201c", "I"])
    equal(shown["text_offset"], [0, 1, 3])
    for token, logprob, top in zip(shown["tokens"], shown["token_logprobs"],
                                   shown["top_logprobs"]):
        equal(len(top), 2)
        assert math.isclose(max(top.values()), logprob, rel_tol=1e-5) and top[token] == logprob


def chat_logprobs():
    data = chat(logprobs=True, top_logprobs=3)
    content = data["choices"][0]["logprobs"]["content"]
    equal(len(content), 4)
    for entry in content:
        equal(bytes(entry["bytes"]).decode(), entry["token"])
        equal(len(entry["top_logprobs"]), 3)
        equal(entry["top_logprobs"][0]["token"], entry["token"])
        falling = [other["logprob"] for other in entry["top_logprobs"]]
        equal(falling, sorted(falling, reverse=True))
    equal("".join(entry["token"] for entry in content), data["choices"][0]["message"]["content"])


def logprobs_sum():
    """The probabilities of the whole vocabulary sum to 1: those of the 20 most likely tokens sum to
    less, and they are sorted."""
    content = chat(logprobs=True, top_logprobs=20)["choices"][0]["logprobs"]["content"]
    for entry in content:
        mass = sum(math.exp(other["logprob"]) for other in entry["top_logprobs"])
        assert 0.05 < mass <= 1.0 + 1e-6, mass


def echo():
    data = complete(max_tokens=2, echo=True, logprobs=1)
    equal(data["choices"][0]["text"], "He said, \u201c")
    shown = data["choices"][0]["logprobs"]
    equal(shown["tokens"], ["He", " said", ",", " \u201c"])
    equal(shown["token_logprobs"][0], None)
    equal(shown["text_offset"], [0, 2, 7, 8])
    only = complete(max_tokens=0, echo=True, logprobs=1)
    equal(only["choices"][0]["text"], "He said")
    equal(only["choices"][0]["logprobs"]["token_logprobs"], shown["token_logprobs"][:2])


def several():
    data = complete(n=3, temperature=1.5, seed=5, max_tokens=8)
    texts = [choice["text"] for choice in data["choices"]]
    equal([choice["index"] for choice in data["choices"]], [0, 1, 2])
    assert len(set(texts)) > 1, texts
    equal(texts[1], complete(temperature=1.5, seed=6, max_tokens=8)["choices"][0]["text"])
    equal(data["usage"]["completion_tokens"], 24)
    chunks = server.stream("/v1/completions", dict(PROMPT, n=3, temperature=1.5, seed=5,
                                                   max_tokens=8))
    for index, text in enumerate(texts):
        equal("".join(chunk["choices"][0]["text"] for chunk in chunks
                      if chunk["choices"][0]["index"] == index), text)


def prompts():
    ids = [token["id"] for token in complete(max_tokens=1, headlight={"prompt": True})
           ["choices"][0]["headlight"]["tokens"]][:2]
    equal(complete(prompt=ids)["choices"][0]["text"], TEXT)
    data = complete(prompt=["He said", ids])
    equal([choice["text"] for choice in data["choices"]], [TEXT, TEXT])


def stops():
    data = complete(max_tokens=30, stop=[" of it", "nowhere"])
    equal(data["choices"][0]["text"], ", \u201cI am not afraid")
    equal(data["choices"][0]["finish_reason"], "stop")
    chunks = server.stream("/v1/completions", dict(PROMPT, max_tokens=30, stop=" of it"))
    equal("".join(chunk["choices"][0]["text"] for chunk in chunks), ", \u201cI am not afraid")


def own_numbers():
    asked = {"entropy": True, "rows": ["entropy", "lookback_prompt"], "patterns": ["L3H1", "L0H0"]}
    whole = complete(max_tokens=3, headlight=asked)["choices"][0]["headlight"]["tokens"]
    equal([token["text"] for token in whole], [",", " \u201c", "I"])
    for token in whole:
        equal([len(token["rows"]["entropy"]), len(token["rows"]["entropy"][0])], [8, 8])
        cells = [value for layer in token["rows"]["entropy"] for value in layer]
        assert math.isclose(sum(cells) / 64, token["attention_entropy"], rel_tol=1e-4)
        equal(sorted(token["patterns"]), ["L0H0", "L3H1"])
        for name, row in token["patterns"].items():
            equal(len(row), token["position"])
            assert math.isclose(sum(row), 1.0, rel_tol=1e-4), row
            entropy = -sum(p * math.log(p) for p in row if p > 0)
            layer, number = int(name[1]), int(name[3])
            assert math.isclose(entropy, token["rows"]["entropy"][layer][number], rel_tol=1e-3,
                                abs_tol=1e-4), name
    chunks = server.stream("/v1/completions", dict(PROMPT, max_tokens=3, headlight=asked))
    streamed = [token for chunk in chunks for token in chunk["choices"][0]["headlight"]["tokens"]]
    equal(streamed, whole)


def without_the_sink():
    """The entropy without the first key, computed from complete rows."""
    asked = {"prompt": True, "rows": ["entropy_nosink", "normalized_nosink"], "patterns": ["L3H1", "L6H2"]}
    tokens = complete(max_tokens=4, headlight=asked)["choices"][0]["headlight"]["tokens"]
    for token in tokens:
        for name, row in token["patterns"].items():
            layer, number = int(name[1]), int(name[3])
            share = token["rows"]["normalized_nosink"][layer][number]
            if token["position"] < 3:
                equal(share, None)
                continue
            others = [p / sum(row[1:]) for p in row[1:]]
            entropy = -sum(p * math.log(p) for p in others if p > 0)
            assert math.isclose(token["rows"]["entropy_nosink"][layer][number], entropy, rel_tol=1e-3,
                                abs_tol=1e-4), name
            assert math.isclose(share, entropy / math.log(len(others)), rel_tol=1e-3,
                                abs_tol=1e-4), name
    equal(len(tokens), 6)


def heads_off():
    off = complete(headlight={"off": ["L0", "L1H3"]})["choices"][0]["text"]
    assert off != TEXT
    equal(off, generated("He said", "-n", "12", "--off", "L0,L1H3")["text"])
    equal(complete()["choices"][0]["text"], TEXT)


def lens():
    status, data = server.post("/v1/headlight/lens", {"input": "He said that"})
    equal([status, data["layers"], len(data["lens"]), len(data["tokens"])], [200, 8, 9, 3])
    assert all(0 <= value <= math.log(4096) for row in data["lens"] for value in row["entropy"])


def maps():
    status, data = server.post("/v1/headlight/tokens", {"input": "He said that", "heads": ["L3H1"]})
    equal([status, len(data["maps"]), data["maps"][1]["name"]], [200, 2, "L3H1"])
    for row in data["maps"][1]["attention"]:
        assert math.isclose(sum(row), 1.0, rel_tol=1e-4)


def command(name, *options):
    """The program's output as JSON."""
    program = os.environ.get("HEADLIGHT", "build/headlight")
    return json.loads(subprocess.run([program, name, *options, "--json", "--threads", "1"],
                                     capture_output=True, check=True).stdout)


def views_off():
    """Heads are disabled in views as by the command, and for one request only."""
    text, off = "He said that it was so", ["L0", "L2H1"]
    for path, seen, name in [("lens", "lens", "lens"), ("tokens", "maps", "tokens")]:
        on = server.post("/v1/headlight/" + path, {"input": text})[1]
        status, data = server.post("/v1/headlight/" + path, {"input": text, "off": off})
        equal(status, 200)
        assert data[seen] != on[seen], path
        wanted = command(name, "models/demo", text, "--off", ",".join(off))
        numbers = [value for row in data[seen] for value in row["entropy"]]
        known = [value for row in wanted[seen] for value in row["entropy"]]
        equal(len(numbers), len(known))
        assert all(math.isclose(a, b, rel_tol=1e-4, abs_tol=1e-5) for a, b in zip(numbers, known))
        equal(server.post("/v1/headlight/" + path, {"input": text, "off": []})[1], on)


TALE = ("He said that it was so, and that it had been so for as long as he could say. "
        "She went to the door and looked at the garden, where nobody had been that day. ") * 2


def rank():
    """The ranking is the command's, and at a ratio its first heads are removed."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(TALE)
        file.flush()
        for ranker in ["entropy", "entropy-nosink", "gradient", "weight", "random"]:
            wanted = command("rank", "--model", "models/demo", "--by", ranker, "--text", file.name,
                             "--context", "256")
            status, data = server.post("/v1/headlight/rank", {"input": TALE, "ranker": ranker,
                                                              "ratios": [0.25, 0.5]})
            equal(status, 200)
            equal([row["head"] for row in data["heads"]], [row["name"] for row in wanted["rows"]])
            equal([len(choice["off"]) for choice in data["choices"]], [16, 32])
            assert set(data["choices"][0]["off"]) <= set(data["choices"][1]["off"])
            equal(data["ranker"], ranker)
            equal("random order" in data.get("verdict", ""), ranker in ("entropy", "entropy-nosink"))
        gradient = server.post("/v1/headlight/rank", {"input": TALE, "ranker": "gradient"})[1]
        for body in ({"input": TALE}, {"input": TALE, "ranker": "auto"}):
            equal(server.post("/v1/headlight/rank", body)[1], gradient)  # the ranking is not by entropy


def frontier():
    """The command's points and its heads."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file, tempfile.TemporaryDirectory() as out:
        file.write(TALE * 4)
        file.flush()
        wanted = command("prune", "models/demo", "--text", file.name, "--context", "32", "--max-tokens",
                         "4096", "--until-loss", "0.2", "--no-timing", "-o", out + "/pruned")
        status, data = server.post("/v1/headlight/frontier", {"input": TALE * 4, "until_loss": 0.2,
                                                              "context": 32})
        equal(status, 200)
        equal(data["off"], wanted["removed_heads"])
        rows = wanted["budget"]["frontier"]["rows"]
        equal([(p["ranker"], p["heads"], p["bytes"], p["fits"]) for p in data["points"]],
              [(r["order"], r["heads"], r["bytes"], r["fits"]) for r in rows])
        assert all(abs(p["change"] - r["rise"]) < 1e-6 for p, r in zip(data["points"], rows))
        best = data["points"][data["recommended"]]
        equal(best["heads"], len(data["off"]))
        assert best["fits"] and best["interval"][1] <= 0.2
    one = server.post("/v1/headlight/frontier", {"input": TALE * 4, "rankers": ["wanda"], "until_kl": 1,
                                                    "context": 32, "repair": False})
    equal({p["ranker"] for p in one[1]["points"]}, {"wanda"})
    status, data = server.post("/v1/headlight/frontier", {"input": TALE * 4, "context": 32, "repair": False,
                                                             "rankers": ["weight"], "until_bytes": 1000})
    equal(status, 400)
    assert "as small as 1000 bytes" in data["error"]["message"]


def evaluate():
    """The loss of a text equals that from its tokens' log-probabilities, with and without heads."""
    settings = [[], ["L0", "L2H1"], "L7"]
    status, data = server.post("/v1/headlight/evaluate",
                               {"input": TALE, "settings": settings, "context": 256})
    equal([status, len(data["settings"])], [200, 3])
    for off, seen in zip(settings, data["settings"]):
        echo = complete(prompt=TALE, max_tokens=0, echo=True, logprobs=0, headlight={"off": off})
        logprobs = echo["choices"][0]["logprobs"]["token_logprobs"][1:]
        equal(data["tokens"], len(logprobs))
        assert math.isclose(seen["nll"], -sum(logprobs) / len(logprobs), rel_tol=1e-4), seen
    equal(data["windows"], 1)  # one window gives no confidence interval
    equal(data["settings"][0], {"nll": data["nll"], "agreement": 1.0, "kl": 0.0, "change": 0.0,
                                "interval": None})
    for seen in data["settings"][1:]:
        assert 0 < seen["agreement"] < 1 and seen["kl"] > 0 and seen["nll"] != data["nll"], seen


def evaluate_interval():
    """A long text is cut into windows, whose differences give a confidence interval; a text of a few
    tokens has neither."""
    for text in ("", "abcde", TALE[:40]):
        status, data = server.post("/v1/headlight/evaluate", {"input": text, "settings": [["L0"]]})
        equal([status, data["error"]["param"]], [400, "input"])
        assert "wanted 64 or more" in data["error"]["message"], data
    tale = TALE * 4
    status, data = server.post("/v1/headlight/evaluate", {"input": tale, "settings": [[], ["L0"], ["L5H1"]]})
    equal(status, 200)
    assert data["windows"] >= 8, data
    equal([data["settings"][0]["change"], data["settings"][0]["interval"]], [0.0, [0.0, 0.0]])
    for seen in data["settings"][1:]:
        low, high = seen["interval"]
        assert low < seen["change"] < high, seen
        assert math.isclose(seen["change"], seen["nll"] - data["nll"], abs_tol=1e-5), seen
    # The same from single windows, one request each: a ratio of sums.
    texts = [TALE, "And so it was. " + TALE, "She said no. " + TALE[::-1][:60] + TALE, "Then. " + TALE[60:]]
    whole = server.post("/v1/headlight/evaluate",
                        {"input": texts, "settings": [["L0"]], "context": 256})[1]
    alone = [server.post("/v1/headlight/evaluate",
                         {"input": text, "settings": [["L0"]], "context": 256})[1] for text in texts]
    equal([whole["windows"]] + [one["windows"] for one in alone], [4, 1, 1, 1, 1])
    assert alone[0]["settings"][0]["interval"] in (None, [None, None]), alone[0]
    counts = [one["tokens"] for one in alone]
    sums = [one["settings"][0]["change"] * one["tokens"] for one in alone]
    mean = sum(sums) / sum(counts)
    error = math.sqrt(4 / 3 * sum((d - mean * c) ** 2 for d, c in zip(sums, counts))) / sum(counts)
    low, high = whole["settings"][0]["interval"]
    # Student's t, with fewer degrees of freedom where texts differ in length; the skewed side is longer.
    freedom = sum(counts) ** 2 / sum(c * c for c in counts) - 1
    near, far = sorted((mean - low, high - mean))
    assert math.isclose(near, student_quantile(freedom) * error, rel_tol=1e-2), (low, high, mean, error)
    assert far >= near, (low, high, mean)


def names_no_file():
    """Messages name the request's members, not a file that the server made for them."""
    for path, more in [("/v1/measure", {}), ("/v1/headlight/rank", {})]:
        for text in ("", ["", ""]):
            status, data = server.post(path, dict(more, input=text))
            equal(status, 400)
            assert data["error"]["message"].startswith("input: no text"), data


def one_model():
    status, _, data = server.ask("GET", "/v1/models/demo")
    equal([status, data["id"], data["object"], data["owned_by"]], [200, "demo", "model", "headlight"])
    equal(data, server.ask("GET", "/v1/models")[2]["data"][0])
    equal(server.ask("GET", "/v1/models/dem%6F")[0], 200)
    for other in ("gpt-4", "demo/x", "demo2"):
        status, _, data = server.ask("GET", "/v1/models/" + other)
        equal([status, data["error"]["code"], data["error"]["type"], data["error"]["param"]],
              [404, "model_not_found", "not_found_error", "model"])
        assert other in data["error"]["message"], data
    equal(server.ask("GET", "/v1/models/")[0], 404)
    equal(server.ask("DELETE", "/v1/models/demo")[0], 405)


def wrong_ids():
    for ids, said in [([1.5], "prompt token 0 is not a whole number"), ([1, -1], "prompt token 1 is -1"),
                      ([[1], [2.5]], "prompt token 0 is not a whole number"),
                      ([1, None], "prompt token 1 is null")]:
        status, data = server.post("/v1/completions", dict(PROMPT, prompt=ids))
        equal(status, 400)
        assert said in data["error"]["message"], data


def report():
    """The answer has all data of a report."""
    status, data = server.post("/v1/measure", {"input": TALE, "report": True})
    shown = data["report"]
    equal([status, shown["name"], shown["corpus"]["tokens"]], [200, "demo", data["tokens"]])
    equal([one["name"] for one in shown["diagnoses"]], [one["name"] for one in data["diagnoses"]])
    for part in ["means", "types", "histogram", "histogram_nosink", "positions", "twins"]:
        assert shown[part], part


def measure():
    status, data = server.post("/v1/measure", {"input": ["He said that it was so. " * 8, "And so."]})
    equal([status, data["sequences"], len(data["means"]["entropy"])], [200, 2, 8])
    equal(len(data["diagnoses"]), 12)
    assert all(value > 0 for layer in data["means"]["entropy"] for value in layer)


def metrics():
    assert server.metric("generated_tokens_total") > 100
    assert server.metric("slots") == 4
    _, headers, text = server.ask("GET", "/metrics")
    assert headers["Content-Type"].startswith("text/plain")
    assert 'headlight_requests_total{route="/v1/measure",code="200"} 2' in text.decode()


def refused():
    for path, body, status, param in [
            ("/v1/completions", {"prompt": "a", "temperature": 3}, 400, "temperature"),
            ("/v1/completions", {"prompt": "a", "temperature": "hot"}, 400, "temperature"),
            ("/v1/completions", {"prompt": "a", "n": 0}, 400, "n"),
            ("/v1/completions", {"prompt": "a", "n": 100}, 400, "n"),
            ("/v1/completions", {"prompt": "a", "frequency_penalty": 1}, 400, "frequency_penalty"),
            ("/v1/completions", {"prompt": "a", "logit_bias": {"5": 1}}, 400, "logit_bias"),
            ("/v1/completions", {"prompt": "a", "stop": ""}, 400, "stop"),
            ("/v1/completions", {"prompt": "a", "max_tokens": -1}, 400, "max_tokens"),
            ("/v1/completions", {"prompt": [4096]}, 400, "prompt"),
            ("/v1/completions", {"prompt": {}}, 400, "prompt"),
            ("/v1/completions", {}, 400, "prompt"),
            ("/v1/completions", [], 400, None),
            ("/v1/completions", {"prompt": "a", "model": "gpt-4"}, 404, "model"),
            ("/v1/completions", {"prompt": "word " * 2000}, 400, "prompt"),
            ("/v1/completions", {"prompt": "a", "headlight": {"off": ["L99H1"]}}, 400, "headlight"),
            ("/v1/completions", {"prompt": "a", "headlight": {"rows": ["x"]}}, 400, "headlight"),
            ("/v1/chat/completions", {"messages": []}, 400, "messages"),
            ("/v1/chat/completions", {"messages": [{"role": "wizard", "content": "a"}]}, 400,
             "messages"),
            ("/v1/chat/completions", {"messages": [{"role": "user", "content": 5}]}, 400,
             "messages"),
            ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}],
                                      "tools": {"type": "function"}}, 400, "tools"),
            ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}],
                                      "tool_choice": "required"}, 400, "tool_choice"),
            ("/v1/measure", {"input": ""}, 400, None),
            ("/v1/measure", {"text": "a"}, 400, "text"),
            ("/v1/measure", {"input": "a", "report": 1}, 400, "report"),
            ("/v1/measure", [5], 400, None),
            ("/v1/headlight/lens", {"input": 5}, 400, "input"),
            ("/v1/headlight/lens", {"input": "a", "off": ["L9H9"]}, 400, "off"),
            ("/v1/headlight/lens", {"input": "a", "off": 3}, 400, "off"),
            ("/v1/headlight/lens", {"input": "a", "off": ["L1H1", 3]}, 400, "off"),
            ("/v1/headlight/tokens", {"input": "a", "off": ["L1,L2"]}, 400, "off"),
            ("/v1/headlight/tokens", {"input": "a", "off": [""]}, 400, "off"),
            ("/v1/headlight/tokens", {"input": "a", "heads": ["L9H9"]}, 400, "heads"),
            ("/v1/headlight/tokens", {"input": "a", "heads": {}}, 400, "heads"),
            ("/v1/headlight/rank", {"input": "a", "ranker": "nobody"}, 400, "ranker"),
            ("/v1/headlight/rank", {"input": "a", "ranker": "ablation"}, 400, "ranker"),
            ("/v1/headlight/rank", {"input": "a", "ratios": [1.0]}, 400, "ratios"),
            ("/v1/headlight/rank", {"input": "a", "ratios": [0.1] * 17}, 400, "ratios"),
            ("/v1/headlight/rank", {"ranker": "entropy"}, 400, "input"),
            ("/v1/headlight/frontier", {"input": "a"}, 400, "input"),
            ("/v1/headlight/frontier", {"input": TALE, "until_loss": -1}, 400, "until_loss"),
            ("/v1/headlight/frontier", {"input": TALE, "until_kl": "x"}, 400, "until_kl"),
            ("/v1/headlight/frontier", {"input": TALE, "rankers": ["ablation"]}, 400, "rankers"),
            ("/v1/headlight/frontier", {"input": TALE, "rankers": []}, 400, "rankers"),
            ("/v1/headlight/frontier", {"input": TALE, "until_loss": 1, "keep": "L0"}, 400, "keep"),
            ("/v1/headlight/evaluate", {"input": "a"}, 400, "settings"),
            ("/v1/headlight/evaluate", {"input": "a", "settings": []}, 400, "settings"),
            ("/v1/headlight/evaluate", {"input": "a", "settings": [["L9"]]}, 400, "settings"),
            ("/v1/headlight/evaluate", {"input": "a", "settings": [[]] * 33}, 400, "settings"),
            ("/v1/headlight/evaluate", {"input": "a", "settings": [[]]}, 400, "input"),
            ("/v1/headlight/evaluate", {"input": TALE, "settings": [[]], "context": 1}, 400, "context")]:
        seen, data = server.post(path, body)
        assert seen == status, (path, body, seen, data)
        error = data["error"]
        equal(sorted(error), ["code", "message", "param", "type"])
        assert error["message"], body
        assert error["param"] == param, (body, error)
    equal(server.ask("GET", "/nowhere")[0], 404)
    equal(server.ask("GET", "/v1/completions")[0], 405)
    equal(server.ask("DELETE", "/v1/models")[0], 405)


def together():
    """Sixteen texts at once on four slots: each is the same as alone."""
    bodies = [dict(PROMPT, prompt=text, max_tokens=10 + i, seed=i, temperature=(i % 3) * 0.5)
              for i, text in enumerate(["He said", "The", "It was a", "She went to the"] * 4)]
    alone = [server.post("/v1/completions", body)[1]["choices"][0]["text"] for body in bodies]
    seen = [None] * len(bodies)

    def ask(i):
        seen[i] = server.post("/v1/completions", bodies[i])[1]["choices"][0]["text"]

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(bodies))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    equal(seen, alone)


def left_early():
    """Texts that end with a stop word, together with others: their jobs are cancelled while they
    run."""
    rows = {"rows": ["entropy"], "patterns": ["L3H1"]}
    bodies = [(dict(PROMPT, max_tokens=30, stop=[" of it"]), ", \u201cI am not afraid"),
              (dict(PROMPT, headlight=rows), TEXT),
              (dict(PROMPT, max_tokens=2, echo=True, logprobs=3), "He said, \u201c")]
    wrong = []

    def ask():
        for body, wanted in bodies * 6:
            status, data = server.post("/v1/completions", body)
            if status != 200 or data["choices"][0]["text"] != wanted:
                wrong.append((status, data))

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    equal(wrong, [])


def ends():
    equal(server.close(), 0)


for test in [health, models, about, path_for_strangers, page, head, completion, same_as_generate, spikes, stream,
             chat_whole, chat_stream, logprobs, chat_logprobs, logprobs_sum, echo, several, prompts,
             stops, own_numbers, without_the_sink, heads_off, lens, maps, views_off, rank, frontier, evaluate,
             evaluate_interval, names_no_file, one_model, wrong_ids, report, measure, metrics, refused,
             together, left_early, ends]:
    tap.run(test.__name__.replace("_", " "), test)
tap.finish()
