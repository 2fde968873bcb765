"""GPT-2's body in other software: from token ids to the final norm, no unembedding.

    python3 gpt2_peer.py THREADS KIND:FOLDER

KIND is onnx, openvino, openvino-bf16 or torch; FOLDER has hf-f32/model.safetensors.  Started by
bench/peer.c; reads lines and answers each:

    time S           the seconds of one run over S tokens
    hidden S FILE    "ok", when the hidden states (S, 768) are in the file, f32

ONNX Runtime and OpenVINO get the model written in several ways, from ONNX's own operators to those
that exporters write in their place; the fastest at a length is what is timed.
"""
import json
import os
import sys
import time

LAYERS, HEADS, MODEL, VOCAB, EPSILON = 12, 12, 768, 50257, 1e-5
HEAD, TRIALS = MODEL // HEADS, 4
WEIGHTS = "hf-f32/model.safetensors"


def tokens(n):
    """Those of bench/model_work.c."""
    return [(i * 31337 + 17) % VOCAB for i in range(n)]


def read_weights(numpy, folder):
    path = os.path.join(folder, WEIGHTS)
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
    header.pop("__metadata__", None)
    return {name: numpy.memmap(path, "<f4", "r", 8 + size + t["data_offsets"][0], tuple(t["shape"]))
            for name, t in header.items()}


class Onnx:
    """The graph for n tokens."""

    def __init__(self, numpy, helper, weights, n, kind):
        self.numpy, self.helper, self.nodes, self.values, self.n = numpy, helper, [], [], n
        self.weights, self.count, self.used = weights, 0, set()
        self.attend = getattr(self, kind)

    def name(self):
        self.count += 1
        return "v%d" % self.count

    def node(self, kind, inputs, n_outputs=1, domain="", **attributes):
        outputs = [self.name() for _ in range(n_outputs)]
        self.used.update(name for name in inputs if name in self.weights)
        self.nodes.append(self.helper.make_node(kind, inputs, outputs, domain=domain, **attributes))
        return outputs[0] if n_outputs == 1 else outputs

    def constant(self, values, dtype="int64"):
        from onnx import numpy_helper
        name = self.name()
        self.values.append(numpy_helper.from_array(self.numpy.asarray(values, dtype), name))
        return name

    def norm(self, x, name):
        return self.node("LayerNormalization", [x, name + ".weight", name + ".bias"], axis=-1,
                         epsilon=EPSILON)

    def linear(self, x, name):
        return self.node("Add", [self.node("MatMul", [x, name + ".weight"]), name + ".bias"])

    def heads(self, rows, order):
        shape = self.constant([self.n, HEADS, HEAD])
        return self.node("Transpose", [self.node("Reshape", [rows, shape])], perm=order)

    def plain(self, x, name):
        """ONNX's own operators, with a mask."""
        q, k, v = self.node("Split", [self.linear(x, name + ".c_attn")], 3, axis=1, num_outputs=3)
        q = self.node("Mul", [q, self.constant(HEAD ** -0.5, "float32")])
        scores = self.node("MatMul", [self.heads(q, [1, 0, 2]), self.heads(k, [1, 2, 0])])
        p = self.node("Softmax", [self.node("Add", [scores, self.mask])], axis=-1)
        z = self.node("MatMul", [p, self.heads(v, [1, 0, 2])])
        return self.node("Reshape", [self.node("Transpose", [z], perm=[1, 0, 2]),
                                     self.constant([self.n, MODEL])])

    def attention(self, x, name):
        """ONNX Runtime's operator that projects as well."""
        batch = self.node("Reshape", [x, self.constant([1, self.n, -1])])
        z = self.node("Attention", [batch, name + ".c_attn.weight", name + ".c_attn.bias"],
                      domain="com.microsoft", num_heads=HEADS, unidirectional=1)
        return self.node("Reshape", [z, self.constant([self.n, MODEL])])

    def grouped(self, x, name):
        """The one that language models are exported with, which never looks above the diagonal."""
        qkv = self.linear(x, name + ".c_attn")
        batch = self.node("Reshape", [qkv, self.constant([1, self.n, -1])])
        z = self.node("GroupQueryAttention",
                      [batch, "", "", "", "", self.constant([self.n - 1], "int32"),
                       self.constant(self.n, "int32")], 3, domain="com.microsoft",
                      num_heads=HEADS, kv_num_heads=HEADS)[0]
        return self.node("Reshape", [z, self.constant([self.n, MODEL])])

    def gelu(self, x, bias):
        return self.node("FastGelu", [x, bias], domain="com.microsoft")

    def build(self):
        from onnx import TensorProto, numpy_helper
        helper, n = self.helper, self.n
        self.mask = self.constant(self.numpy.triu(self.numpy.full((n, n), -1e30), 1), "float32")
        places = self.node("Slice", ["wpe.weight", self.constant([0]), self.constant([n])])
        x = self.node("Add", [self.node("Gather", ["wte.weight", "ids"]), places])
        for layer in range(LAYERS):
            h = "h.%d" % layer
            z = self.attend(self.norm(x, h + ".ln_1"), h + ".attn")
            x = self.node("Add", [x, self.linear(z, h + ".attn.c_proj")])
            up = self.node("MatMul", [self.norm(x, h + ".ln_2"), h + ".mlp.c_fc.weight"])
            act = self.gelu(up, h + ".mlp.c_fc.bias")
            x = self.node("Add", [x, self.linear(act, h + ".mlp.c_proj")])
        last = self.norm(x, "ln_f")
        names = self.used | {h for node in self.nodes for h in node.input if h in self.weights}
        values = [numpy_helper.from_array(self.numpy.asarray(self.weights[name]), name)
                  for name in sorted(names)]
        graph = helper.make_graph(
            self.nodes, "gpt2", [helper.make_tensor_value_info("ids", TensorProto.INT64, [n])],
            [helper.make_tensor_value_info(last, TensorProto.FLOAT, [n, MODEL])],
            self.values + values)
        return helper.make_model(graph, ir_version=9, opset_imports=[
            helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)])


def onnx_bytes(numpy, weights, n, kind):
    from onnx import helper
    return Onnx(numpy, helper, weights, n, kind).build().SerializeToString()


class OnnxRuntime:
    def __init__(self, threads, folder):
        import numpy
        import onnx  # noqa: F401, so that it is missed here
        import onnxruntime
        self.numpy, self.runtime, self.threads = numpy, onnxruntime, threads
        self.weights, self.name = read_weights(numpy, folder), "ONNX Runtime %s, f32"
        self.name %= onnxruntime.__version__

    def ways(self, n):
        options = self.runtime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = self.threads, 1
        options.log_severity_level = 3
        ids = {"ids": self.numpy.asarray(tokens(n), "int64")}
        for kind in ("plain", "attention", "grouped"):
            model = onnx_bytes(self.numpy, self.weights, n, kind)
            session = self.runtime.InferenceSession(model, options,
                                                    providers=["CPUExecutionProvider"])
            yield kind, lambda session=session: session.run(None, ids)[0]


class OpenVino:
    """The graph in OpenVINO's own operators: its scaled-dot-product attention, or plain ones."""

    def __init__(self, threads, folder, kind="f32"):
        import numpy
        import openvino
        self.numpy, self.openvino, self.threads, self.kind = numpy, openvino, threads, kind
        self.weights = read_weights(numpy, folder)
        self.name = "OpenVINO %s, %s" % (openvino.__version__.split("-")[0], kind)
        core = openvino.Core()
        if kind == "bf16" and "BF16" not in core.get_property("CPU", "OPTIMIZATION_CAPABILITIES"):
            raise ImportError("OpenVINO: this CPU has no bf16")

    def model(self, n, fused):
        from openvino import opset13 as ops
        numpy = self.numpy
        ids = ops.parameter([n], numpy.int64, name="ids")

        def weight(name):
            return ops.constant(numpy.asarray(self.weights[name]))

        def norm(x, name):
            x = ops.mvn(x, ops.constant(numpy.asarray([-1], "int64")), True, EPSILON, "INSIDE_SQRT")
            return ops.add(ops.multiply(x, weight(name + ".weight")), weight(name + ".bias"))

        def linear(x, name):
            return ops.add(ops.matmul(x, weight(name + ".weight"), False, False),
                           weight(name + ".bias"))

        def heads(rows, order=(1, 0, 2)):
            shape = ops.constant(numpy.asarray([n, HEADS, HEAD], "int64"))
            four = ops.transpose(ops.reshape(rows, shape, False),
                                 ops.constant(numpy.asarray(order, "int64")))
            return ops.unsqueeze(four, ops.constant(numpy.asarray(0, "int64")))

        mask = ops.constant(numpy.triu(numpy.full((n, n), -1e30, "float32"), 1))
        places = ops.constant(numpy.asarray(self.weights["wpe.weight"][:n]))
        zero = ops.constant(numpy.asarray(0, "int64"))
        x = ops.add(ops.gather(weight("wte.weight"), ids, zero), places)
        for layer in range(LAYERS):
            h = "h.%d" % layer
            qkv = ops.split(linear(norm(x, h + ".ln_1"), h + ".attn.c_attn"),
                            ops.constant(numpy.asarray(1, "int64")), 3)
            q, k, v = (heads(qkv.output(i)) for i in range(3))
            if fused:
                z = ops.scaled_dot_product_attention(q, k, v, causal=True)
            else:
                scale = ops.constant(numpy.asarray(HEAD ** -0.5, "float32"))
                scores = ops.add(ops.multiply(ops.matmul(q, k, False, True), scale), mask)
                z = ops.matmul(ops.softmax(scores, -1), v, False, False)
            z = ops.transpose(z, ops.constant(numpy.asarray([0, 2, 1, 3], "int64")))
            z = ops.reshape(z, ops.constant(numpy.asarray([n, MODEL], "int64")), False)
            x = ops.add(x, linear(z, h + ".attn.c_proj"))
            act = ops.gelu(linear(norm(x, h + ".ln_2"), h + ".mlp.c_fc"), "TANH")
            x = ops.add(x, linear(act, h + ".mlp.c_proj"))
        return self.openvino.Model([norm(x, "ln_f")], [ids], "gpt2")

    def ways(self, n):
        core = self.openvino.Core()
        ids = self.numpy.asarray(tokens(n), "int64")
        config = {"INFERENCE_NUM_THREADS": self.threads, "NUM_STREAMS": 1,
                  "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": self.kind}
        for kind, fused in (("plain", False), ("fused", True)):
            request = core.compile_model(self.model(n, fused), "CPU", config).create_infer_request()
            yield kind, lambda request=request: request.infer([ids])[0]


class Torch:
    """transformers' GPT-2 with PyTorch's scaled_dot_product_attention."""

    def __init__(self, threads, folder):
        import torch
        import transformers
        torch.set_num_threads(threads)
        self.torch = torch
        self.model = transformers.GPT2Model.from_pretrained(
            os.path.join(folder, "hf-f32"), attn_implementation="sdpa", dtype=torch.float32).eval()
        self.name = "transformers %s, PyTorch %s, SDPA" % (transformers.__version__,
                                                           torch.__version__)

    def ways(self, n):
        ids = self.torch.tensor([tokens(n)])

        def run():
            with self.torch.inference_mode():
                return self.model(ids, use_cache=False).last_hidden_state[0].numpy()
        yield "sdpa", run


def seconds(run):
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def choose(peer, n):
    """The fastest way at this length."""
    best = None
    for kind, run in peer.ways(n):
        run()
        least = min(seconds(run) for _ in range(TRIALS))
        print("%s, %d tokens, %s: %.1f/s" % (peer.name, n, kind, n / least), file=sys.stderr)
        if best is None or least < best[0]:
            best = (least, run)
    return best[1]


def answer(run, words):
    if words[0] == "time":
        return "%.9f" % seconds(run)
    run().astype("<f4").tofile(words[2])
    return "ok"


def main():
    kind, folder = sys.argv[2].split(":", 1)
    threads = int(sys.argv[1])
    try:
        peer = {"onnx": OnnxRuntime, "openvino": OpenVino, "torch": Torch,
                "openvino-bf16": lambda t, f: OpenVino(t, f, "bf16")}[kind](threads, folder)
    except ImportError as error:
        print("no", error, flush=True)
        return
    print("ready", peer.name, flush=True)
    runs = {}
    for line in sys.stdin:
        words = line.split()
        try:
            n = int(words[1])
            if n not in runs:
                runs[n] = choose(peer, n)
            print(answer(runs[n], words), flush=True)
        except Exception as error:  # the bench leaves a peer out that says why
            print("no", str(error).splitlines()[0] if str(error) else repr(error), flush=True)


if __name__ == "__main__":
    main()
