// openai.mjs: the server as the OpenAI client for Node sees it: chat, stream, stop, n, logprobs, usage, errors.
//
//   node openai.mjs ADDRESS KEY WRITTEN
//
// WRITTEN is what `cellar run` writes after "Once upon a time", 24 tokens at temperature 0. What comes in pieces is
// compared with what comes whole, and that with WRITTEN. Prints a line for what fails, and the counts last.
import assert from "node:assert/strict";
import OpenAI from "openai";

const [address, key, written] = process.argv.slice(2);
const client = new OpenAI({ baseURL: `${address}/v1`, apiKey: key, maxRetries: 0, timeout: 60000 });
const model = "storyteller";
const messages = [{ role: "user", content: "Tell me of a little dog." }];
const greedy = { model, temperature: 0, max_tokens: 24 };

async function gather(stream) {
  const texts = [];
  const finishes = [];
  let usage = null;
  let role = null;
  for await (const chunk of stream) {
    for (const choice of chunk.choices) {
      role ??= choice.delta?.role ?? null;
      texts[choice.index] = (texts[choice.index] ?? "") + (choice.delta?.content ?? choice.text ?? "");
      if (choice.finish_reason) finishes[choice.index] = choice.finish_reason;
    }
    if (chunk.usage) {
      assert.equal(chunk.choices.length, 0);
      usage = chunk.usage;
    }
  }
  return { texts, finishes, usage, role };
}

const tests = {
  async models_are_listed() {
    const ids = [];
    for await (const its of client.models.list()) ids.push(its.id);
    assert.deepEqual(ids, [model]);
  },

  async a_completion_is_what_run_writes() {
    const its = await client.completions.create({ ...greedy, prompt: "Once upon a time" });
    assert.equal(its.choices[0].text.trim(), written.trim());
    assert.equal(its.choices[0].finish_reason, "length");
    assert.equal(its.usage.completion_tokens, 24);
  },

  async chat_in_pieces_is_chat_as_a_whole() {
    const whole = await client.chat.completions.create({ ...greedy, messages });
    const its = await gather(
      await client.chat.completions.create({ ...greedy, messages, stream: true, stream_options: { include_usage: true } }),
    );
    assert.equal(whole.object, "chat.completion");
    assert.equal(whole.choices[0].message.role, "assistant");
    assert.ok(whole.choices[0].message.content.length > 0);
    assert.equal(its.role, "assistant");
    assert.deepEqual(its.texts, [whole.choices[0].message.content]);
    assert.deepEqual(its.finishes, [whole.choices[0].finish_reason]);
    assert.equal(its.usage.prompt_tokens, whole.usage.prompt_tokens);
    assert.equal(its.usage.completion_tokens, whole.usage.completion_tokens);
    assert.equal(its.usage.total_tokens, its.usage.prompt_tokens + its.usage.completion_tokens);
    assert.equal(its.usage.prompt_tokens_details.cached_tokens, its.usage.prompt_tokens - 1);
  },

  async the_helper_for_streams_works() {
    const stream = client.chat.completions.stream({ ...greedy, messages });
    let pieces = "";
    stream.on("content", (delta) => (pieces += delta));
    const whole = await stream.finalChatCompletion();
    assert.equal(whole.choices[0].message.content, pieces);
  },

  async a_stop_ends_before_itself() {
    const all = (await client.chat.completions.create({ ...greedy, messages })).choices[0].message.content;
    const stop = all.slice(10, 14);
    const before = all.slice(0, all.indexOf(stop));
    const whole = await client.chat.completions.create({ ...greedy, messages, stop });
    const pieces = await gather(await client.chat.completions.create({ ...greedy, messages, stop: [stop], stream: true }));
    assert.equal(whole.choices[0].message.content, before);
    assert.equal(whole.choices[0].finish_reason, "stop");
    assert.deepEqual(pieces.texts, [before]);
    assert.deepEqual(pieces.finishes, ["stop"]);
  },

  async n_choices_are_those_of_their_seeds() {
    const warm = { ...greedy, messages, temperature: 1 };
    const three = await client.chat.completions.create({ ...warm, n: 3, seed: 5 });
    const pieces = await gather(await client.chat.completions.create({ ...warm, n: 3, seed: 5, stream: true }));
    assert.deepEqual(three.choices.map((c) => c.index), [0, 1, 2]);
    assert.deepEqual(pieces.texts, three.choices.map((c) => c.message.content));
    for (const i of [0, 1, 2]) {
      const one = await client.chat.completions.create({ ...warm, seed: 5 + i });
      assert.equal(one.choices[0].message.content, three.choices[i].message.content);
    }
  },

  async probabilities_say_what_was_chosen() {
    const its = await client.chat.completions.create({ ...greedy, messages, logprobs: true, top_logprobs: 3 });
    const list = its.choices[0].logprobs.content;
    assert.equal(list.length, its.usage.completion_tokens);
    assert.equal(list.map((p) => p.token).join("").trim(), its.choices[0].message.content.trim());
    for (const one of list) {
      assert.equal(one.top_logprobs.length, 3);
      assert.equal(one.top_logprobs[0].token, one.token); // greedy
      assert.ok(one.logprob <= 0 && one.top_logprobs[0].logprob >= one.top_logprobs[1].logprob);
      assert.ok(one.top_logprobs.reduce((sum, t) => sum + Math.exp(t.logprob), 0) <= 1.0001);
    }
    const old = await client.completions.create({ ...greedy, prompt: "Once upon a time", logprobs: 2 });
    assert.equal(old.choices[0].logprobs.tokens.length, 24);
    assert.equal(old.choices[0].logprobs.token_logprobs.length, 24);
  },

  async several_prompts_are_several_choices() {
    const prompt = ["Once upon a time", "The little cat"];
    const both = await client.completions.create({ ...greedy, prompt });
    for (const i of [0, 1]) {
      const one = await client.completions.create({ ...greedy, prompt: prompt[i] });
      assert.equal(both.choices[i].text, one.choices[0].text);
    }
  },

  async embeddings_come_back() {
    const its = await client.embeddings.create({ model, input: ["a dog", "a cat"] });
    assert.equal(its.data.length, 2);
    assert.ok(its.data[0].embedding.length > 0 && its.data[0].embedding.every(Number.isFinite));
  },

  async an_abandoned_stream_is_abandoned() {
    const controller = new AbortController();
    const long = { ...greedy, messages, max_tokens: 100000, stream: true, ignore_eos: true };
    const stream = await client.chat.completions.create(long, { signal: controller.signal });
    for await (const chunk of stream) {
      assert.ok(chunk);
      controller.abort();
    }
    const next = await client.chat.completions.create({ ...greedy, messages });
    assert.equal(next.choices.length, 1);
  },

  async errors_have_their_classes() {
    await assert.rejects(client.chat.completions.create({ ...greedy, messages: [] }), (e) => {
      assert.ok(e instanceof OpenAI.BadRequestError);
      assert.equal(e.status, 400);
      assert.equal(e.param, "messages");
      assert.equal(e.type, "invalid_request_error");
      return true;
    });
    const stranger = new OpenAI({ baseURL: `${address}/v1`, apiKey: "another", maxRetries: 0 });
    await assert.rejects(stranger.chat.completions.create({ ...greedy, messages }), OpenAI.AuthenticationError);
    const words = "a dog ".repeat(5000);
    await assert.rejects(client.completions.create({ ...greedy, prompt: words }), (e) => {
      assert.equal(e.status, 400);
      assert.equal(e.type, "exceed_context_size_error");
      return true;
    });
  },
};

let failed = 0;
for (const [name, test] of Object.entries(tests)) {
  try {
    await test();
  } catch (error) {
    failed++;
    console.log(`FAIL openai, ${name}: ${error.stack}`);
  }
}
console.log(`${Object.keys(tests).length - failed} ${failed}`);
