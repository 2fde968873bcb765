// Writes ONNX files, as far as the benchmark needs them: a protocol buffer is fields of
// (number, kind) and either a varint or bytes with their length.  Field numbers are those of
// onnx.proto.  Weights stay where they are: a tensor names a file, an offset and a length.
"use strict";

const FLOAT = 1, INT32 = 6, INT64 = 7; // TensorProto.DataType

function varint(value) {
  const bytes = [];
  let rest = BigInt.asUintN(64, BigInt(value));
  while (rest >= 128n) {
    bytes.push(Number(rest & 127n) | 128);
    rest >>= 7n;
  }
  bytes.push(Number(rest));
  return Buffer.from(bytes);
}

const number = (field, value) => Buffer.concat([varint(field << 3), varint(value)]);

function bytes(field, value) {
  const body = Buffer.isBuffer(value) ? value : Buffer.from(value, "utf8");
  return Buffer.concat([varint((field << 3) | 2), varint(body.length), body]);
}

function float(field, value) {
  const body = Buffer.alloc(4);
  body.writeFloatLE(value);
  return Buffer.concat([varint((field << 3) | 5), body]);
}

const message = (field, parts) => bytes(field, Buffer.concat(parts));

function attribute(name, value) {
  if (Array.isArray(value))
    return message(5, [bytes(1, name), ...value.map((i) => number(8, i)), number(20, 7)]);
  if (typeof value === "string")
    return message(5, [bytes(1, name), bytes(4, value), number(20, 3)]);
  if (typeof value === "object") // { float: 1e-5 }: a whole number can be a float too
    return message(5, [bytes(1, name), float(2, value.float), number(20, 1)]);
  return message(5, [bytes(1, name), number(3, value), number(20, 2)]);
}

function value(field, name, type, shape) {
  const dims = shape.map((dim) =>
    message(1, [typeof dim === "string" ? bytes(2, dim) : number(1, dim)]));
  const tensor = message(1, [number(1, type), message(2, dims)]);
  return message(field, [bytes(1, name), message(2, [tensor])]);
}

class Graph {
  constructor() {
    this.parts = [];
    this.count = 0;
  }

  // Adds a node and returns the name of its (first) output.
  node(op, inputs, attributes = {}, { domain = "", outputs = 1 } = {}) {
    const names = Array.from({ length: outputs }, (_, i) => `t${this.count}_${i}`);
    this.count += 1;
    this.parts.push(message(1, [
      ...inputs.map((name) => bytes(1, name)),
      ...names.map((name) => bytes(2, name)),
      bytes(3, `${op}_${this.count}`),
      bytes(4, op),
      ...Object.entries(attributes).map(([name, given]) => attribute(name, given)),
      bytes(7, domain),
    ]));
    return outputs === 1 ? names[0] : names;
  }

  contrib(op, inputs, attributes = {}, outputs = 1) {
    return this.node(op, inputs, attributes, { domain: "com.microsoft", outputs });
  }

  constant(type, shape, data) {
    const name = `c${this.count++}`;
    this.parts.push(message(5, [
      ...shape.map((dim) => number(1, dim)), number(2, type), bytes(8, name),
      bytes(9, Buffer.from(data.buffer)),
    ]));
    return name;
  }

  ints(...values) {
    return this.constant(INT64, [values.length], BigInt64Array.from(values, BigInt));
  }

  scalar(real) {
    return this.constant(FLOAT, [], Float32Array.of(real));
  }

  // An f32 tensor that lies in another file.
  external(name, shape, file, offset, length) {
    const entry = (key, text) => message(13, [bytes(1, key), bytes(2, text)]);
    this.parts.push(message(5, [
      ...shape.map((dim) => number(1, dim)), number(2, FLOAT), bytes(8, name),
      entry("location", file), entry("offset", `${offset}`), entry("length", `${length}`),
      number(14, 1),
    ]));
    return name;
  }

  input(name, type, shape) {
    this.parts.push(value(11, name, type, shape));
    return name;
  }

  // The whole model, with one output of this name and shape.
  finish(last, name, shape) {
    this.parts.push(message(1, [bytes(1, last), bytes(2, name), bytes(4, "Identity")]));
    this.parts.push(bytes(2, "model"), value(12, name, FLOAT, shape));
    return Buffer.concat([
      number(1, 9), // the version of the format
      message(7, this.parts),
      message(8, [bytes(1, ""), number(2, 20)]),
      message(8, [bytes(1, "com.microsoft"), number(2, 1)]),
    ]);
  }
}

module.exports = { Graph, FLOAT, INT32, INT64 };
