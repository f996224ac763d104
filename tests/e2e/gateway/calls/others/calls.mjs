// Calls a gateway before the starter set as Vercel's AI SDK does: node calls.mjs URL; one line for each call.
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { embed, generateObject, generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const baseURL = `${process.argv[2]}/v1`;
const compatible = createOpenAICompatible({ name: "trimodal", baseURL, supportsStructuredOutputs: true });
const openai = createOpenAI({ baseURL, apiKey: "none" });
const prompt = "What is the capital of France?";
const city = z.object({ city: z.string().max(20), large: z.boolean() });
const weather = tool({
  description: "weather of a city",
  inputSchema: z.object({ city: z.string().max(20) }),
  execute: async ({ city }) => `sunny in ${city}`,
});

async function streamed(model) {
  const answer = streamText({ model, prompt, maxOutputTokens: 24 });
  let text = "";
  for await (const part of answer.textStream) text += part;
  return text || Promise.reject(new Error("no text came"));
}

// The first step must call the tool, the second is told what it returned.
async function loop(model) {
  const answer = await generateText({
    model,
    prompt: "What is the weather in Paris?",
    maxOutputTokens: 60,
    tools: { weather },
    stopWhen: stepCountIs(2),
    prepareStep: ({ stepNumber }) => ({ toolChoice: stepNumber ? "none" : "required" }),
  });
  return answer.steps.length === 2 ? answer.text : Promise.reject(new Error("there was no second step"));
}

const calls = {};
for (const [name, model] of Object.entries({ compatible: compatible.chatModel("llm"), openai: openai.chat("llm") })) {
  calls[`${name}: text`] = async () => (await generateText({ model, prompt, maxOutputTokens: 24 })).text;
  calls[`${name}: stream`] = () => streamed(model);
  calls[`${name}: object`] = async () =>
    (await generateObject({ model, schema: city, prompt: "Tell of Paris.", maxOutputTokens: 100 })).object;
  calls[`${name}: tools and their results`] = () => loop(model);
}
calls["openai: responses"] = async () =>
  (await generateText({ model: openai("llm"), prompt, maxOutputTokens: 24 })).text;
// What was answered comes back as references to its items, which the gateway keeps.
calls["openai: responses, a second turn"] = async () => {
  const asked = { model: openai("llm"), maxOutputTokens: 24 };
  const question = { role: "user", content: prompt };
  const { response } = await generateText({ ...asked, messages: [question] });
  const again = { role: "user", content: "And of Italy?" };
  return (await generateText({ ...asked, messages: [question, ...response.messages, again] })).text;
};
calls["openai: responses, tools and their results"] = () => loop(openai("llm"));
calls["compatible: completion"] = async () =>
  (await generateText({ model: compatible.completionModel("llm"), prompt, maxOutputTokens: 8 })).text;
calls["compatible: embedding"] = async () =>
  (await embed({ model: compatible.textEmbeddingModel("embedding"), value: "a text" })).embedding.length;

for (const [name, call] of Object.entries(calls)) {
  try {
    console.log("ok", name, JSON.stringify(await call()).slice(0, 100));
  } catch (error) {
    console.log("FAILED", name, String(error).slice(0, 500));
  }
}
