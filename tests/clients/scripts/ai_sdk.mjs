// Vercel's AI SDK: text, streams, tools and structured output, over responses (its default) and over chat completions.
import assert from "node:assert";
import { createOpenAI } from "@ai-sdk/openai";
import { embed, generateText, Output, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const openai = createOpenAI({ baseURL: process.env.OPENAI_BASE_URL, apiKey: process.env.OPENAI_API_KEY });
const city = z.object({ name: z.string(), people: z.number() });
const weather = tool({
  description: "Get the weather in a location",
  inputSchema: z.object({ location: z.string() }),
  execute: async ({ location }) => ({ location, temperature: 72 }),
});

for (const model of [openai("ada"), openai.chat("ada")]) {
  const { text } = await generateText({ model, prompt: "Which number has the locker at the gym?" });
  assert(text.includes("4711"), text);

  const streamed = streamText({ model, messages: [{ role: "user", content: "Invent a new holiday." }] });
  let said = "";
  for await (const part of streamed.textStream) said += part;
  assert(said.includes("Invent a new holiday."), said);
  assert((await streamed.usage).totalTokens > 0);

  const { output } = await generateText({ model, output: Output.object({ schema: city }), prompt: "Which city?" });
  assert(city.safeParse(output).success);

  const ran = await generateText({
    model,
    tools: { weather },
    stopWhen: stepCountIs(5),
    prompt: "What is the weather in San Francisco?",
  });
  assert(ran.text.includes("72"), ran.text);
  const messages = [{ role: "user", content: "Hello" }, ...ran.response.messages, { role: "user", content: "Say sesame." }];
  const further = await generateText({ model, messages });
  assert(further.text.includes("sesame"), further.text);
  await generateText({ model, prompt: "Hello", stopSequences: ["Observation:"], temperature: 0 });
}

const { embedding } = await embed({ model: openai.embedding("ada"), value: "sunny day at the beach" });
assert(embedding.length > 0);
