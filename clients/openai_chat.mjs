// Streams an answer with OpenAI's package for JavaScript through `trimodal gateway`.
//
//   npm install openai
//   node clients/openai_chat.mjs "What is the capital of Japan?" http://127.0.0.1:8080/v1
import OpenAI from "openai";

const [text, baseURL = "http://127.0.0.1:8080/v1", apiKey = "none"] = process.argv.slice(2);
if (!text) {
  console.error('usage: node openai_chat.mjs "a question" [URL [KEY]]');
  process.exit(2);
}
process.stdout.on("error", () => process.exit(1)); // nobody reads it any more, as of `| head`
const client = new OpenAI({ baseURL, apiKey });
try {
  const stream = await client.chat.completions.create({
    model: "llm",
    messages: [{ role: "user", content: text }],
    max_tokens: 256,
    stream: true,
  });
  for await (const chunk of stream) {
    process.stdout.write(chunk.choices[0]?.delta?.content ?? "");
  }
  process.stdout.write("\n");
} catch (error) {
  console.error(`openai_chat.mjs: ${error.message}`);
  process.exit(1);
}
