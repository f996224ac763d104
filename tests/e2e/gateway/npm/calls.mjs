// Calls every endpoint of the gateway with OpenAI's package for JavaScript; prints a line for each call.
import assert from "node:assert/strict";
import fs from "node:fs";
import OpenAI, { toFile } from "openai";

const [url, recording] = process.argv.slice(2);
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0, timeout: 30_000 });
const messages = [{ role: "user", content: "hi" }];

async function collected(stream, text) {
  let whole = "";
  for await (const event of stream) whole += text(event) ?? "";
  return whole;
}

const calls = {
  async models() {
    const names = (await client.models.list()).data.map((model) => model.id);
    for (const name of ["llm", "embedding", "speech", "vision"]) assert(names.includes(name), name);
    assert.equal((await client.models.retrieve("llm")).id, "llm");
  },
  async chat() {
    const { data, response } = await client.chat.completions
      .create({ model: "llm", messages, max_tokens: 12, temperature: 0 }).withResponse();
    assert.equal(data.choices[0].finish_reason, "length");
    assert.equal(data.usage.completion_tokens, 12);
    assert(response.headers.get("x-request-id"));
    const stream = await client.chat.completions.create({
      model: "llm", messages, max_tokens: 12, temperature: 0, stream: true, stream_options: { include_usage: true },
    });
    let usage;
    const text = await collected(stream, (chunk) => {
      usage = chunk.usage ?? usage;
      return chunk.choices[0]?.delta?.content;
    });
    assert.equal(text, data.choices[0].message.content);
    assert.equal(usage.completion_tokens, 12);
  },
  async choices() {
    const answer = await client.chat.completions.create({ model: "llm", messages, n: 3, max_tokens: 4 });
    assert.deepEqual(answer.choices.map((choice) => choice.index), [0, 1, 2]);
  },
  async accumulated() {
    const runner = client.chat.completions.stream({ model: "llm", messages, max_tokens: 8 });
    const final = await runner.finalChatCompletion();
    assert(final.choices[0].message.content.length > 0);
  },
  async completions() {
    const answer = await client.completions.create({ model: "llm", prompt: "a", max_tokens: 4, echo: true });
    assert(answer.choices[0].text.startsWith("a"));
  },
  async responses() {
    const answer = await client.responses.create({ model: "llm", input: "hi", max_output_tokens: 8 });
    assert.equal(answer.status, "incomplete");
    const stream = await client.responses.create({ model: "llm", input: "hi", max_output_tokens: 8, stream: true });
    const text = await collected(stream, (event) => (event.type === "response.output_text.delta" ? event.delta : ""));
    assert.equal(text, answer.output_text);
  },
  async embeddings() {
    // The package asks for base64 and decodes it.
    const { data } = await client.embeddings.create({ model: "embedding", input: ["a", "b"] });
    assert.deepEqual(data.map((one) => one.embedding.length), [384, 384]);
    const floats = await client.embeddings.create({ model: "embedding", input: "a", encoding_format: "float" });
    data[0].embedding.forEach((value, index) => assert(Math.abs(value - floats.data[0].embedding[index]) < 1e-6));
  },
  async transcriptions() {
    const file = () => toFile(fs.createReadStream(recording), "a.wav");
    const told = await client.audio.transcriptions.create({ model: "speech", file: await file() });
    assert.equal(told.text, "one two");
    const words = await client.audio.transcriptions.create({
      model: "speech", file: await file(), response_format: "verbose_json", timestamp_granularities: ["word"],
    });
    assert.deepEqual(words.words.map((word) => word.word), ["one", "two"]);
    const stream = await client.audio.transcriptions.create({ model: "speech", file: await file(), stream: true });
    const text = await collected(stream, (event) => (event.type === "transcript.text.done" ? event.text : ""));
    assert.equal(text, "one two");
  },
  async errors() {
    await assert.rejects(
      client.chat.completions.create({ model: "nothing", messages }),
      (error) => error instanceof OpenAI.NotFoundError && /no model 'nothing'/.test(error.message));
    await assert.rejects(
      client.chat.completions.create({ model: "llm", messages, max_tokens: 1_000_000 }),
      (error) => error instanceof OpenAI.BadRequestError && error.type === "invalid_request_error");
    await assert.rejects(
      client.chat.completions.create({ model: "llm", messages, modalities: ["text", "audio"] }),
      (error) => error instanceof OpenAI.BadRequestError && error.param === "modalities");
  },
  async aborted() {
    const leaving = new AbortController();
    const stream = await client.chat.completions.create(
      { model: "llm", messages, max_tokens: 64, stream: true }, { signal: leaving.signal });
    let chunks = 0;
    for await (const _ of stream) if (++chunks === 2) leaving.abort();
    assert(leaving.signal.aborted);
  },
};

for (const [name, call] of Object.entries(calls)) {
  await call();
  console.log(`ok ${name}`);
}
