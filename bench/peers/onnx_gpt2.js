// GPT-2's body in ONNX Runtime, f32: from token ids to the final norm, no unembedding.
//
//     node onnx_gpt2.js THREADS FOLDER
//
// Started by bench/peer.c; FOLDER has hf-f32/model.safetensors.  Reads lines and answers each:
//
//     time S           the seconds of one run over S tokens
//     hidden S FILE    "ok", when the hidden states (S, 768) are in the file, f32
//
// The same model is written in several ways, from ONNX's own operators to those that ONNX
// Runtime's optimizer puts in their place, and the fastest at a length is what is timed.
"use strict";

const fs = require("fs");
const path = require("path");
const { Graph, INT32, INT64 } = require("./onnx_writer.js");

const LAYERS = 12, HEADS = 12, MODEL = 768, VOCAB = 50257, EPSILON = { float: 1e-5 };
const HEAD = MODEL / HEADS, TRIALS = 4;
const WEIGHTS = "hf-f32/model.safetensors";

// ------------------------------------------------------------------- graphs

// The tensors of a safetensors file, as externals of the graph.
function addWeights(graph, folder) {
  const file = fs.openSync(path.join(folder, WEIGHTS));
  const size = Buffer.alloc(8);
  fs.readSync(file, size, 0, 8, 0);
  const header = Buffer.alloc(Number(size.readBigUInt64LE()));
  fs.readSync(file, header, 0, header.length, 8);
  fs.closeSync(file);
  for (const [name, tensor] of Object.entries(JSON.parse(header))) {
    if (name === "__metadata__") continue;
    const [begin, end] = tensor.data_offsets;
    graph.external(name, tensor.shape, WEIGHTS, 8 + header.length + begin, end - begin);
  }
}

const norm = (graph, x, name) =>
  graph.node("LayerNormalization", [x, `${name}.weight`, `${name}.bias`],
    { axis: -1, epsilon: EPSILON });

const linear = (graph, x, name) => graph.node("Gemm", [x, `${name}.weight`, `${name}.bias`]);

// Each takes the normed stream (n, MODEL) and gives the heads' outputs, joined (n, MODEL).
const attentions = {
  // ONNX's own operators; the mask is made once for all layers.
  plain(graph, x, layer, shared) {
    const qkv = graph.node("Split", [linear(graph, x, `h.${layer}.attn.c_attn`)],
      { axis: 1, num_outputs: 3 }, { outputs: 3 });
    const turn = (rows, perm) =>
      graph.node("Transpose", [graph.node("Reshape", [rows, shared.heads])], { perm });
    const scaled = graph.node("Mul", [qkv[0], shared.scale]);
    const scores = graph.node("MatMul", [turn(scaled, [1, 0, 2]), turn(qkv[1], [1, 2, 0])]);
    const p = graph.node("Softmax", [graph.node("Add", [scores, shared.mask])], { axis: -1 });
    const z = graph.node("MatMul", [p, turn(qkv[2], [1, 0, 2])]);
    return graph.node("Reshape", [graph.node("Transpose", [z], { perm: [1, 0, 2] }), shared.flat]);
  },
  // The operator of ONNX Runtime that projects as well.
  attention(graph, x, layer, shared) {
    const z = graph.contrib("Attention",
      [graph.node("Reshape", [x, shared.batch]), `h.${layer}.attn.c_attn.weight`,
        `h.${layer}.attn.c_attn.bias`], { num_heads: HEADS, unidirectional: 1 });
    return graph.node("Reshape", [z, shared.flat]);
  },
  // The one that language models are exported with, which never looks above the diagonal.
  grouped(graph, x, layer, shared) {
    const qkv = linear(graph, x, `h.${layer}.attn.c_attn`);
    const z = graph.contrib("GroupQueryAttention",
      [graph.node("Reshape", [qkv, shared.batch]), "", "", "", "", shared.last, shared.total],
      { num_heads: HEADS, kv_num_heads: HEADS }, 3);
    return graph.node("Reshape", [z[0], shared.flat]);
  },
};

// Constants and masks that every layer uses, for n tokens.
function addShared(graph, n) {
  const mask = graph.node("ConstantOfShape", [graph.ints(n, n)]);
  const far = graph.node("Trilu", [graph.node("Add", [mask, graph.scalar(-1e30)]),
    graph.constant(INT64, [], BigInt64Array.of(1n))], { upper: 1 });
  return {
    heads: graph.ints(n, HEADS, HEAD),
    flat: graph.ints(n, MODEL),
    batch: graph.ints(1, n, -1),
    scale: graph.scalar(1 / Math.sqrt(HEAD)),
    mask: far,
    last: graph.constant(INT32, [1], Int32Array.of(n - 1)),
    total: graph.constant(INT32, [], Int32Array.of(n)),
  };
}

// The model for n tokens.
function build(folder, kind, n) {
  const graph = new Graph();
  addWeights(graph, folder);
  const shared = addShared(graph, n);
  const ids = graph.input("ids", INT64, [n]);
  const places = graph.node("Slice", ["wpe.weight", graph.ints(0), graph.ints(n)]);
  let x = graph.node("Add", [graph.node("Gather", ["wte.weight", ids]), places]);
  for (let layer = 0; layer < LAYERS; layer += 1) {
    const h = `h.${layer}`;
    const z = attentions[kind](graph, norm(graph, x, `${h}.ln_1`), layer, shared);
    x = graph.node("Add", [x, linear(graph, z, `${h}.attn.c_proj`)]);
    const up = graph.node("MatMul", [norm(graph, x, `${h}.ln_2`), `${h}.mlp.c_fc.weight`]);
    const act = graph.contrib("FastGelu", [up, `${h}.mlp.c_fc.bias`]);
    x = graph.node("Add", [x, linear(graph, act, `${h}.mlp.c_proj`)]);
  }
  return graph.finish(norm(graph, x, "ln_f"), "hidden", [n, MODEL]);
}

// ------------------------------------------------------------------ running

// The tokens of bench/model_work.c.
function makeFeeds(ort, n) {
  const ids = BigInt64Array.from({ length: n }, (_, i) => BigInt((i * 31337 + 17) % VOCAB));
  return { ids: new ort.Tensor("int64", ids, [n]) };
}

async function open(ort, folder, threads, kind, n) {
  const file = path.join(folder, `gpt2-${kind}-${n}.onnx`);
  fs.writeFileSync(file, build(folder, kind, n));
  return ort.InferenceSession.create(file, {
    graphOptimizationLevel: "all",
    executionMode: "sequential",
    intraOpNumThreads: threads,
    interOpNumThreads: 1,
    logSeverityLevel: 3,
  });
}

async function timeOnce(session, feeds) {
  const start = process.hrtime.bigint();
  await session.run(feeds);
  return Number(process.hrtime.bigint() - start) * 1e-9;
}

// The least of a few runs, after one that does not count.
async function trial(session, feeds) {
  await session.run(feeds);
  let least = Infinity;
  for (let i = 0; i < TRIALS; i += 1) least = Math.min(least, await timeOnce(session, feeds));
  return least;
}

// { session, feeds } of the fastest way at this length.
async function choose(ort, folder, threads, n) {
  const feeds = makeFeeds(ort, n);
  let best = { seconds: Infinity };
  for (const kind of Object.keys(attentions)) {
    const session = await open(ort, folder, threads, kind, n);
    const seconds = await trial(session, feeds);
    process.stderr.write(`ONNX Runtime, ${n} tokens, ${kind}: ${(n / seconds).toFixed(1)}/s\n`);
    if (seconds < best.seconds) {
      if (best.session) await best.session.release();
      best = { session, feeds, seconds };
    } else {
      await session.release();
    }
  }
  return best;
}

async function answer(model, words) {
  if (words[0] === "time") return (await timeOnce(model.session, model.feeds)).toFixed(9);
  const { hidden } = await model.session.run(model.feeds);
  fs.writeFileSync(words[2], Buffer.from(hidden.data.buffer, hidden.data.byteOffset,
    hidden.data.byteLength));
  return "ok";
}

async function main() {
  const [threads, folder] = [Number(process.argv[2]), process.argv[3]];
  let ort;
  try {
    ort = require("onnxruntime-node");
  } catch (error) {
    console.log("no onnxruntime-node is not installed (tools/deps bench)");
    return;
  }
  console.log(`ready ONNX Runtime ${ort.env.versions.node}, f32`);
  const models = new Map();
  const lines = require("readline").createInterface({ input: process.stdin });
  for await (const line of lines) {
    const words = line.split(" ");
    const n = Number(words[1]);
    try {
      if (!models.has(n)) models.set(n, await choose(ort, folder, threads, n));
      console.log(await answer(models.get(n), words));
    } catch (error) {
      console.log(`no ${String(error.message).split("\n")[0]}`);
    }
  }
}

main();
