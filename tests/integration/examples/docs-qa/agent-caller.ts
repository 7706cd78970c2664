// A caller of the sample agent on the A2A SDK: what it asks, and how it reads the answers.
import assert from "node:assert/strict";
import {
  type Message,
  type Part,
  SendMessageRequest,
  type StreamResponse,
  type Task,
  TaskState,
} from "@a2a-js/sdk";

export function ask(text: string, messageId: string, returnImmediately = false): SendMessageRequest {
  return SendMessageRequest.fromJSON({
    message: { messageId, role: "ROLE_USER", parts: [{ text }] },
    configuration: { returnImmediately },
  });
}

export function asTask(result: Task | Message): Task {
  assert.ok("status" in result);
  return result;
}

export function textsOf(parts: readonly Part[] = []): string[] {
  return parts.flatMap(({ content }) => (content?.$case === "text" ? [content.value] : []));
}

export function answerOf(task: Task | undefined): string {
  return textsOf((task?.artifacts ?? []).flatMap((artifact) => artifact.parts)).join("");
}

export async function read(stream: AsyncIterable<StreamResponse>): Promise<string[]> {
  const events: string[] = [];
  for await (const { payload } of stream) {
    const state =
      payload?.$case === "task" || payload?.$case === "statusUpdate"
        ? payload.value.status?.state
        : undefined;
    events.push(state === undefined ? String(payload?.$case) : `${payload?.$case}:${TaskState[state]}`);
  }
  return events;
}

/** An answer that waits until the test lets it go. */
export function held() {
  const gate = Promise.withResolvers<string>();
  let asked = 0;
  return {
    release: gate.resolve,
    fail: gate.reject,
    asked: () => asked,
    answer: () => {
      asked += 1;
      return gate.promise;
    },
  };
}
