"""hostile.py PROGRAM - every command, on names and texts that try to control the terminal.  Prints TAP.

Each command runs twice: on a pseudo-terminal, and with pipes.  After the program's own color sequences
are removed, its output must have no control characters and no bidirectional controls. The hostile text
has a color sequence that the program never uses (blinking), a line end, and a carriage return before a
word, so that imitated lines are noticed as well.
"""

import json
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request

PROGRAM = os.path.abspath(sys.argv[1])
ROOT = os.getcwd()
BLINK = "\x1b[5;35;44m"
BIDI = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c"
TEXT = "go" + BLINK + "\x1b]0;OWNED\x07\x1b[2J\u009b3J\x08\x7f\rOWNED" + BIDI
NAME = TEXT + "\nOWNED"
# The program's own sequences: colors, "clear to the end of the line" and "go to a column".
OURS = re.compile(r"\x1b\[[0-9;]*m|\x1b\[K|\x1b\[[0-9]+G")
CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f" + BIDI + "\udc80-\udcff]")
ENVIRONMENT = dict(os.environ, TERM="xterm-256color", COLORTERM="truecolor", LC_ALL="C.UTF-8", OMP_NUM_THREADS="1")
TIMEOUT = 120

number = 0
failed = 0


def problem_of(raw, lines_may_begin=False):
    text = raw.decode("utf-8", "surrogateescape").replace("\r\n", "\n")
    if BLINK in text:
        return "a color sequence that is not the program's"
    # A progress bar returns to the start of its line and clears it.
    text = OURS.sub("", re.sub(r"\r(?=[^\n]*\x1b\[K)", "", text))
    bad = CONTROL.search(text)
    if bad:
        return "%r in %r" % (bad.group(), text[max(0, bad.start() - 60) : bad.end() + 20])
    if "\rOWNED" in text or (not lines_may_begin and re.search(r"^OWNED", text, re.M)):
        return "a line that is not the program's in %r" % text[-300:]
    twice = re.search(r"^headlight (\w+): \1: .*", text, re.M)
    if twice:
        return "a name that is said twice: %r" % twice.group()
    return None


def finish(process, read):
    """Everything that the process writes until it ends."""
    seen = b""
    end = time.time() + TIMEOUT
    while True:
        ready, _, _ = select.select([read], [], [], 0.2)
        if ready:
            try:
                part = os.read(read, 65536)
            except OSError:
                part = b""
            if not part:
                break
            seen += part
        elif time.time() > end:
            process.kill()
            seen += b"\x00timeout"
            break
    process.wait()
    return seen


def on_terminal(arguments, cwd, actions=None, stdin=None):
    ours, theirs = pty.openpty()
    given = theirs if stdin is None else open(stdin)
    process = subprocess.Popen([PROGRAM] + arguments, stdin=given, stdout=theirs, stderr=theirs, cwd=cwd, env=ENVIRONMENT)
    os.close(theirs)
    if actions is not None:
        actions(process, ours)
    seen = finish(process, ours)
    os.close(ours)
    return process.returncode, seen


def on_pipes(arguments, cwd, stdin=None):
    given = subprocess.DEVNULL if stdin is None else open(stdin)
    done = subprocess.run([PROGRAM] + arguments, stdin=given, capture_output=True, cwd=cwd, env=ENVIRONMENT, timeout=TIMEOUT)
    return done.returncode, done.stdout, done.stderr


def result(name, problem):
    global number, failed
    number += 1
    if problem:
        failed += 1
        print("# " + ascii(problem))
    print("%sok %d - %s" % ("not " if problem else "", number, name), flush=True)


def check(name, arguments, cwd, is_data=False, lines=False, code=(0,), stdin=None):
    """is_data: standard output is the text itself, which a pipe gets unchanged."""
    status, seen = on_terminal(arguments, cwd, stdin=stdin)
    problem = problem_of(seen, lines)
    if problem is None and status not in code:
        problem = "exit status %s: %s" % (status, seen[-300:])
    if problem is None:
        _, out, err = on_pipes(arguments, cwd, stdin)
        problem = problem_of(err) or (None if is_data else problem_of(out, lines))
    result(name, problem)


# ------------------------------------------------------------------------ files


def edit_safetensors(target, source, edit):
    """A copy with another header: edit(header, n_bytes) returns bytes to append to the data."""
    data = open(source, "rb").read()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    body = data[8 + length :]
    body += edit(header, len(body))
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    open(target, "wb").write(struct.pack("<Q", len(text)) + text + body)


def make_model(folder, **config):
    os.mkdir(folder)
    source = os.path.join(ROOT, "models/demo")
    for name in ("tokenizer_config.json", "generation_config.json"):
        shutil.copy(os.path.join(source, name), folder)

    def add_tensor(header, n_bytes):
        header["extra." + NAME] = {"dtype": "F32", "shape": [1], "data_offsets": [n_bytes, n_bytes + 4]}
        header.setdefault("__metadata__", {})[NAME] = NAME
        return b"\0\0\0\0"

    edit_safetensors(os.path.join(folder, "model.safetensors"), os.path.join(source, "model.safetensors"), add_tensor)
    values = json.load(open(os.path.join(source, "config.json")))
    values.update(config)
    json.dump(values, open(os.path.join(folder, "config.json"), "w"))
    # Every space of a generated text, and the piece of a special token, are replaced by the hostile
    # text.
    tokenizer = json.load(open(os.path.join(source, "tokenizer.json")))
    tokenizer["decoder"] = {
        "type": "Sequence",
        "decoders": [tokenizer["decoder"], {"type": "Replace", "pattern": {"String": " "}, "content": " " + TEXT}],
    }
    vocab = tokenizer["model"]["vocab"]
    vocab[NAME] = vocab.pop("<|endoftext|>")
    tokenizer["added_tokens"][0]["content"] = NAME
    json.dump(tokenizer, open(os.path.join(folder, "tokenizer.json"), "w"))
    return folder


def make_profile(target, source):
    def spoil(header, _):
        metadata = header["__metadata__"]
        for key in list(metadata):
            if key in ("context", "family", "stride", "version", "samples", "seed") or key.startswith("type."):
                metadata[key] = NAME
        return b""

    edit_safetensors(target, source, spoil)


def make_gguf(path):
    """A header with a hostile name of a value, a hostile architecture and a hostile tensor."""

    def text(value):
        value = value.encode()
        return struct.pack("<Q", len(value)) + value

    values = text("general.architecture") + struct.pack("<I", 8) + text(NAME) + text("x" + NAME) + struct.pack("<I", 8) + text(NAME)
    tensor = text("t" + TEXT[:40]) + struct.pack("<IQIQ", 1, 8, 0, 0)
    head = b"GGUF" + struct.pack("<IQQ", 3, 1, 2) + values + tensor
    open(path, "wb").write(head + b"\0" * (-len(head) % 32) + b"\0" * 32)


# ----------------------------------------------------------------------- checks


def check_models(folder):
    model = make_model(os.path.join(folder, "m" + NAME))
    prompt = "Once upon " + TEXT + " a time"
    text = os.path.join(folder, "t" + NAME + ".txt")
    open(text, "w").write(("There was a king. " + TEXT + " He sat there.\n") * 30)
    profile, other = os.path.join(folder, "p" + NAME), os.path.join(folder, "q" + NAME)
    trace = os.path.join(folder, "trace" + NAME)
    small = ["--max-tokens", "512", "-c", "128"]

    check("measure", ["measure", model, text, "-o", profile, "--nll"] + small, folder)
    make_profile(other, profile)
    for options in ([], ["-t"], ["--json"], ["-t", "--json"]):
        check("info " + " ".join(options), ["info", model] + options, folder)
    for options in ([], ["--json"]):
        check("show " + " ".join(options), ["show", other] + options, folder)
    tables = subprocess.run([PROGRAM, "show", "--table", "list"], capture_output=True, text=True).stdout
    for table in re.findall(r"^(\S+) +\b(?!of a trace)", tables, re.M):
        for options in ([], ["--csv"], ["--json"]):
            check("show --table %s %s" % (table, " ".join(options)), ["show", other, "--table", table] + options, folder)
    for options in ([], ["--json"], ["-v"]):
        check("diagnose " + " ".join(options), ["diagnose", other] + options, folder)
    check("diagnose --try", ["diagnose", "--try", model, text, "--temperature", "2"] + small, folder)
    check("draw", ["draw", other, "-o", "h" + NAME + ".svg"], folder)
    for options in ([], ["--json"], ["--table", "heads", "--csv"], ["-o", "c" + NAME + ".svg"]):
        check("compare " + " ".join(options[:1]), ["compare", profile, other] + options, folder)
    for options in ([], ["--json"], ["--per-document"], ["--reference", model]):
        check("eval " + " ".join(options[:1]), ["eval", model, text, "-c", "64"] + options, folder)
    check("merge", ["merge", profile, profile, "-o", "merged" + NAME], folder)
    for options in ([], ["--json"], ["--csv"]):
        check("rank " + " ".join(options), ["rank", profile, "--by", "entropy"] + options, folder)
    check("prune", ["prune", model, "--profile", profile, "--count", "1", "--by", "entropy", "-o", "pruned" + NAME], folder)
    check("report", ["report", other, "-o", "r" + NAME + ".html"], folder)
    check("sweep", ["sweep", model, "--rank-text", text, "--test-text", text, "--same-text", "--ratios", "0.1", "--seeds", "2"]
        + ["--by", "entropy", "-c", "64", "--rank-tokens", "128", "--test-tokens", "128"], folder)
    for options in ([], ["--json"]):
        check("tokens " + " ".join(options), ["tokens", model, prompt] + options, folder)
        check("lens " + " ".join(options), ["lens", model, prompt] + options, folder)
        check("tokenize " + " ".join(options), ["tokenize", model, prompt] + options, folder)
    check("tokens to a file", ["tokens", model, prompt, "-o", "v" + NAME + ".svg"], folder)
    ids = json.loads(on_pipes(["tokenize", model, prompt, "--json"], folder)[1])["ids"]
    ids_file = os.path.join(folder, "ids.jsonl")
    open(ids_file, "w").write(json.dumps(ids) + "\n")
    check("tokenize --decode", ["tokenize", model, "--decode"], folder, is_data=True, lines=True, stdin=ids_file)
    for options in ([], ["--json"], ["--trace", trace], ["--no-monitor"], ["--on-spike", "warn", "--spike-threshold", "0.1"]):
        check("generate " + " ".join(options[:1]), ["generate", model, prompt, "-n", "24"] + options, folder, is_data=True, lines=True)
    labels = os.path.join(folder, "l" + NAME + ".jsonl")
    spans = [{"trace": os.path.basename(trace), "tokens": [len(ids) + i, len(ids) + i + 1], "right": i % 2 == 0} for i in range(20)]
    open(labels, "w").write("".join(json.dumps(span) + "\n" for span in spans))
    for options in ([], ["--json"]):
        check("judge " + " ".join(options), ["judge", trace, labels] + options, folder)
    return model


def check_other_files(folder, model):
    broken = make_model(os.path.join(folder, "b" + NAME), model_type="zz" + NAME, architectures=[NAME])
    check("info of an unknown family", ["info", broken], folder, code=[3])
    odd = make_model(os.path.join(folder, "o" + NAME), activation_function=NAME)
    check("info of an unknown activation", ["info", odd], folder, code=[3])
    for name, content in (("j" + NAME + ".json", b'{"a' + NAME.encode() + b'": }'), ("s" + NAME + ".safetensors", b"\x1b[2J" * 40)):
        path = os.path.join(folder, name)
        open(path, "wb").write(content)
        for command in ("info", "show", "diagnose", "tokenize", "eval", "verify"):
            words = [command, path, path] if command in ("tokenize", "eval", "verify") else [command, path]
            check("%s on a broken %s" % (command, name[-4:]), words, folder, code=[3])
    gguf = os.path.join(folder, "g" + NAME + ".gguf")
    make_gguf(gguf)
    for options in ([], ["-t"], ["--json"]):
        check("info on GGUF " + " ".join(options), ["info", gguf] + options, folder, code=[3])
    case = os.path.join(folder, "case" + NAME + ".safetensors")
    cases = os.path.join(ROOT, "tests/data/attention")
    shutil.copy(os.path.join(cases, sorted(os.listdir(cases))[0]), case)
    for options in ([], ["--json"]):
        check("verify " + " ".join(options), ["verify", case, case] + options, folder)
    run = os.path.join(folder, "run" + NAME)
    os.mkdir(run)
    os.rename(model, os.path.join(run, "checkpoint-" + NAME + "-10"))
    text = os.path.join(folder, "t" + NAME + ".txt")
    for options in (["--once"], ["--once", "--json"]):
        check("watch " + options[-1], ["watch", run, text, "--series", "series" + options[-1], "--max-tokens", "128", "-c", "64"] + options, folder)
    os.rename(os.path.join(run, "checkpoint-" + NAME + "-10"), model)
    check("demo", ["demo", "--models", folder, "-o", "d" + NAME], folder, code=[3])


def check_bytes(folder, model):
    """Names that are not valid UTF-8: JSON remains valid, with U+FFFD in them."""
    odd = os.fsencode(folder) + b"/odd\xff\x9b"
    os.mkdir(odd)
    for name in (b"m\xff", b"p\xff", b"t\xff", b"c\xff.safetensors"):
        target = {b"m": model, b"p": folder + "/p" + NAME, b"t": folder + "/t" + NAME + ".txt", b"c": folder + "/case" + NAME + ".safetensors"}
        os.symlink(os.fsencode(target[name[:1]]), odd + b"/" + name)
    for words in (
        [b"info", b"m\xff", b"-t"],
        [b"show", b"p\xff"],
        [b"diagnose", b"p\xff"],
        [b"compare", b"p\xff", b"p\xff"],
        [b"eval", b"m\xff", b"t\xff", b"--per-document", b"--reference", b"m\xff", b"-c", b"64"],
        [b"generate", b"m\xff", b"a", b"-n", b"2"],
        [b"verify", b"c\xff.safetensors"],
        [b"prune", b"m\xff", b"--profile", b"p\xff", b"--count", b"1", b"-o", b"out\xff"],
        [b"measure", b"m\xff", b"t\xff", b"--max-tokens", b"128", b"-c", b"64", b"-o", b"new\xff"],
    ):
        status, out, err = on_pipes(words + [b"--json"], odd)
        problem = problem_of(out) or problem_of(err)
        try:
            json.loads(out)
        except ValueError:
            problem = problem or "no JSON: %r, %r" % (out[:80], err[:200])
        result("%s --json of names that are not UTF-8" % words[0].decode(), problem or (status and "exit status %d: %r" % (status, err)))


def check_server(folder, model):
    problems = []

    def talk(process, terminal):
        begun, end = b"", time.time() + TIMEOUT
        while b"stops it" not in begun and time.time() < end and process.poll() is None:
            if select.select([terminal], [], [], 0.2)[0]:
                try:
                    begun += os.read(terminal, 65536)
                except OSError:
                    break
        problems.append(problem_of(begun))
        address = re.search(rb"http://[0-9.]+:[0-9]+/", begun)
        if address is None:
            problems.append("no address: %r" % begun)
        else:
            base = address.group().decode()
            body = json.dumps({"model": NAME, "prompt": "a " + TEXT, "max_tokens": 4, "user": NAME}).encode()
            for path, data in (("v1/completions", body), ("v1/" + "%1b%5b2J%c2%9b", None), ("v1/completions", b"{\x1b[2J")):
                try:
                    headers = {"User-Agent": "\x1b[2J", "Content-Type": "application/json"}
                    urllib.request.urlopen(urllib.request.Request(base + path, data, headers), timeout=30).read()
                except OSError:
                    pass
                except ValueError:
                    pass
        process.send_signal(signal.SIGINT)

    _, seen = on_terminal(["serve", model, "--port", "0"], folder, talk)
    result("serve", next((p for p in problems if p), None) or problem_of(seen))


def check_options(folder):
    """Every option of every command, with a hostile value and hostile arguments; and unknown ones."""
    table = subprocess.run([PROGRAM, "help", "--table"], capture_output=True, text=True).stdout
    rows = [line.split("\t") for line in table.splitlines()]
    for command in [row[1] for row in rows if row[0] == "command"]:
        problem = None
        runs = [["--" + NAME], ["-" + NAME], [NAME], [NAME, NAME], [NAME, NAME, NAME], ["--zz=" + NAME]]
        for row in rows:
            if row[0] != "command" and row[1] == command and row[4] != "flag":
                runs += [["--" + row[3], NAME], ["--" + row[3] + "=" + NAME, NAME, NAME]]
            elif row[0] != "command" and row[1] == command:
                runs += [["--" + row[3] + "=" + NAME]]
        for arguments in runs:
            _, seen = on_terminal([command] + arguments, folder)
            problem = problem or problem_of(seen)
        result("%s: %d mistakes" % (command, len(runs)), problem)
    for arguments in ([NAME], ["--" + NAME], ["help", NAME]):
        check("the program with %d words" % len(arguments), arguments, folder, code=[2])


def main():
    with tempfile.TemporaryDirectory() as folder:
        model = check_models(folder)
        check_other_files(folder, model)
        check_bytes(folder, model)
        check_server(folder, model)
        check_options(folder)
    print("1..%d" % number)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
