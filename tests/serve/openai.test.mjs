// npm's openai package, the official client, against a server with the demo model: what it parses
// without complaint is the wire format.  HEADLIGHT names the program.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { after, before, test } from "node:test";
import OpenAI from "openai";

const token = "the token of this test";
const messages = [
  { role: "system", content: "Be brief." },
  { role: "user", content: "He said" },
];
const prompt = { model: "demo", prompt: "He said", max_tokens: 12, temperature: 0 };
const text = ", “I am not afraid of it, and I am";
let server, client, baseURL;

before(async () => {
  server = spawn(process.env.HEADLIGHT ?? "build/headlight",
    ["serve", "models/demo", "--port", "0", "--threads", "1", "--slots", "2", "--queue", "1",
      "--context", "512", "--token", token],
    { stdio: ["ignore", "pipe", "inherit"] });
  const [line] = await once(createInterface({ input: server.stdout }), "line");
  baseURL = line + "v1";
  client = new OpenAI({ apiKey: token, baseURL, maxRetries: 0 });
});

after(async () => {
  server.kill("SIGTERM");
  const [code] = await once(server, "exit");
  assert.equal(code, 0);
});

const collect = async (stream) => {
  const chunks = [];
  for await (const chunk of stream) chunks.push(chunk);
  return chunks;
};

test("models", async () => {
  const list = await client.models.list();
  assert.deepEqual(list.data.map((model) => [model.id, model.object]), [["demo", "model"]]);
});

test("a completion", async () => {
  const answer = await client.completions.create(prompt);
  assert.equal(answer.object, "text_completion");
  assert.equal(answer.choices[0].text, text);
  assert.equal(answer.choices[0].finish_reason, "length");
  assert.equal(answer.choices[0].logprobs, null);
  assert.deepEqual(answer.usage,
    { prompt_tokens: 2, completion_tokens: 12, total_tokens: 14 });
});

test("a completion, streamed, with usage", async () => {
  const chunks = await collect(await client.completions.create(
    { ...prompt, stream: true, stream_options: { include_usage: true } }));
  const last = chunks.pop();
  assert.equal(chunks.map((chunk) => chunk.choices[0].text).join(""), text);
  assert.equal(chunks.at(-1).choices[0].finish_reason, "length");
  assert.deepEqual(last.choices, []);
  assert.equal(last.usage.total_tokens, 14);
});

test("log-probabilities of a completion", async () => {
  const { logprobs } = (await client.completions.create({ ...prompt, logprobs: 3 })).choices[0];
  assert.equal(logprobs.tokens.join(""), text);
  assert.equal(logprobs.token_logprobs.length, 12);
  for (const [i, top] of logprobs.top_logprobs.entries()) {
    assert.equal(Object.keys(top).length, 3);
    assert.equal(top[logprobs.tokens[i]], logprobs.token_logprobs[i]);
  }
  assert.equal(text.slice(logprobs.text_offset[5]).startsWith(logprobs.tokens[5]), true);
});

test("a chat", async () => {
  const answer = await client.chat.completions.create(
    { model: "demo", messages, max_completion_tokens: 6, temperature: 0, seed: 1 });
  assert.equal(answer.object, "chat.completion");
  assert.equal(answer.choices[0].message.role, "assistant");
  assert.equal(answer.choices[0].message.refusal, null);
  assert.ok(answer.choices[0].message.content.length > 0);
  assert.equal(answer.usage.completion_tokens, 6);
});

test("a chat, streamed: the same text, by the client's own collector too", async () => {
  const body = { model: "demo", messages, max_tokens: 8, temperature: 0 };
  const whole = (await client.chat.completions.create(body)).choices[0].message.content;
  const chunks = await collect(await client.chat.completions.create({ ...body, stream: true }));
  assert.equal(chunks[0].choices[0].delta.role, "assistant");
  assert.equal(chunks.map((chunk) => chunk.choices[0].delta.content ?? "").join(""), whole);
  assert.equal(chunks.at(-1).choices[0].finish_reason, "length");

  const collected = client.chat.completions.stream({ ...body, stream_options: { include_usage: true } });
  const final = await collected.finalChatCompletion();
  assert.equal(final.choices[0].message.content, whole);
  assert.equal((await collected.totalUsage()).completion_tokens, 8);
});

test("log-probabilities of a chat, streamed and not", async () => {
  const body = { model: "demo", messages, max_tokens: 5, temperature: 0, logprobs: true,
    top_logprobs: 2 };
  const { logprobs } = (await client.chat.completions.create(body)).choices[0];
  assert.equal(logprobs.content.length, 5);
  for (const entry of logprobs.content) {
    assert.equal(Buffer.from(entry.bytes).toString(), entry.token);
    assert.equal(entry.top_logprobs.length, 2);
    assert.ok(entry.logprob <= 0);
  }
  const chunks = await collect(await client.chat.completions.create({ ...body, stream: true }));
  assert.deepEqual(chunks.flatMap((chunk) => chunk.choices[0].logprobs?.content ?? []),
    logprobs.content);
});

test("several choices, and a stop", async () => {
  const answer = await client.completions.create({ ...prompt, n: 2, stop: [" afraid"] });
  assert.deepEqual(answer.choices.map((choice) => choice.text),
    [", “I am not", ", “I am not"]);
  assert.deepEqual(answer.choices.map((choice) => choice.finish_reason), ["stop", "stop"]);
});

test("the numbers of heads, as one more member", async () => {
  const asked = { entropy: true, rows: ["entropy"] };
  const answer = await client.completions.create({ ...prompt, headlight: asked });
  const { tokens } = answer.choices[0].headlight;
  assert.equal(tokens.length, 12);
  assert.equal(tokens[0].rows.entropy.length, 8);
  const chunks = await collect(await client.completions.create(
    { ...prompt, stream: true, headlight: asked }));
  assert.deepEqual(chunks.flatMap((chunk) => chunk.choices[0].headlight.tokens), tokens);
});

test("errors are the client's own", async () => {
  await assert.rejects(client.completions.create({ ...prompt, temperature: 9 }), (error) =>
    error instanceof OpenAI.BadRequestError && error.param === "temperature" &&
    error.type === "invalid_request_error");
  await assert.rejects(client.completions.create({ ...prompt, model: "gpt-4" }), (error) =>
    error instanceof OpenAI.NotFoundError && error.code === "model_not_found");
  await assert.rejects(new OpenAI({ apiKey: "wrong", baseURL, maxRetries: 0 }).models.list(),
    (error) => error instanceof OpenAI.AuthenticationError && error.code === "invalid_api_key");
});

test("a full queue is a RateLimitError, and the client's retries get through", async () => {
  const body = { ...prompt, max_tokens: 200 };
  const answers = await Promise.allSettled(
    Array.from({ length: 8 }, () => client.completions.create(body)));
  const refused = answers.filter((answer) => answer.status === "rejected");
  assert.ok(refused.length > 0 && refused.length < 8, `${refused.length} refused`);
  for (const answer of refused) assert.ok(answer.reason instanceof OpenAI.RateLimitError);

  const patient = new OpenAI({ apiKey: token, baseURL, maxRetries: 10 });
  const texts = await Promise.all(
    Array.from({ length: 6 }, () => patient.completions.create({ ...prompt, max_tokens: 40 })));
  assert.equal(new Set(texts.map((answer) => answer.choices[0].text)).size, 1);
});

test("a stream that is left in the middle frees its slot", async () => {
  const stream = await client.completions.create(
    { ...prompt, max_tokens: 400, stream: true, ignore_eos: true });
  for await (const chunk of stream) {
    assert.equal(chunk.choices.length, 1);
    break; // the client aborts the connection
  }
  const answer = await client.completions.create({ ...prompt, n: 2 });
  assert.equal(answer.choices[1].text, text);
});
