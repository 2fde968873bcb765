"""check_models.py - runs models with known results on the GPU.

    python3 bench/cuda/check_models.py PROGRAM PEERS.json MODEL...

Runs `PROGRAM verify` on every MODEL (a folder with expected.safetensors, or a .gguf) on the devices
cuda:f32 and cuda, one process each, and prints a line per model: what failed in f32, the largest
error of the entropies in f32 and in bf16, and that of transformers' bf16 run, which golden_peers.py
stored in PEERS.json ("-": none)."""
import json
import os
import subprocess
import sys


def verify(program, device, model, expected=None):
    command = [program, "verify", "--json", "--backend", "avx2", model]
    if expected is not None:
        command += ["--expected", expected]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120,
                          env=dict(os.environ, HEADLIGHT_DEVICE=device))
    try:
        outputs = json.loads(done.stdout)["cases"][0]["outputs"]
    except (ValueError, KeyError, IndexError):
        return None, (done.stderr.strip() or done.stdout.strip() or f"status {done.returncode}")
    failed = [f"{o['output']} {o['error']:.1e}" for o in outputs if not o["passed"]]
    entropy = [o["error"] for o in outputs if o["output"] == "entropy"]
    return (entropy[0] if entropy else None), ", ".join(failed)


def main():
    program, peers_path, models = sys.argv[1], sys.argv[2], sys.argv[3:]
    peers = {}
    if peers_path != "-":
        with open(peers_path, encoding="utf-8") as file:
            peers = json.load(file)
    n_failed = n_over = 0
    for model in models:
        name = os.path.basename(model.rstrip("/")).removesuffix(".gguf")
        beside = os.path.join(os.path.dirname(model), "..", "families", name,
                              "expected.safetensors")
        expected = beside if model.endswith(".gguf") else None
        exact, failed = verify(program, "cuda:f32", model, expected)
        rough, trouble = verify(program, "cuda", model, expected)
        peer = peers.get(name, {}).get("max")
        ratio = rough / peer if rough is not None and peer else None
        n_failed += exact is None or bool(failed)
        n_over += ratio is not None and ratio > 1.5
        print(f"{name:14} f32 {exact if exact is None else format(exact, '.1e')}  "
              f"bf16 {rough if rough is None else format(rough, '.2e')}  "
              f"transformers {peer if peer is None else format(peer, '.2e')}  "
              f"ratio {ratio if ratio is None else format(ratio, '.2f')}  "
              f"{'FAILED f32: ' + failed if failed or exact is None else 'ok'}"
              f"{'  bf16: ' + trouble if rough is None else ''}", flush=True)
    print(f"{len(models)} models: {n_failed} failed in f32, {n_over} above 1.5 times transformers' "
          "error in bf16")


if __name__ == "__main__":
    main()
