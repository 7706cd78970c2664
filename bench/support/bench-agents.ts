// Agents on one HTTP server, each under its own path with a signed card, that answer as a benchmark says.
import type { ServerResponse } from "node:http";
import { systemRandom } from "../../src/domain/clock.ts";
import { bytesOf, minimalCard, signedCard, testKey } from "../../tests/support/cards.ts";
import { listen, sendJson } from "./json-server.ts";

export type AgentBehaviour =
  /** Answers at once by a message. */
  | { readonly kind: "answer" }
  /** Answers by a task that is done after this time. */
  | { readonly kind: "task"; readonly ms: number }
  /** Answers by a table of this many cells in one row. */
  | { readonly kind: "wide-table"; readonly cells: number }
  /** Answers by this many text parts without text. */
  | { readonly kind: "empty-parts"; readonly parts: number }
  /** Sends bytes without end. */
  | { readonly kind: "endless" }
  /** Never answers. */
  | { readonly kind: "hang" }
  /** Makes a task that never ends, with another progress text at each poll. */
  | { readonly kind: "never-done" }
  /** Asks a question at each state of its task. */
  | { readonly kind: "input_required" }
  /** Answers 503. */
  | { readonly kind: "away" };

interface Call {
  readonly id: unknown;
  readonly params: {
    readonly id?: string;
    readonly message?: { readonly parts: { readonly text: string }[] };
  };
}

/** Starts agents of these names, whose cards one key signs. */
export async function startAgents(
  behaviours: Readonly<Record<string, AgentBehaviour>>,
  onQuestion: (question: string) => void,
) {
  const key = await testKey("bench");
  const cards = new Map<string, Uint8Array>();
  const readyAt = new Map<string, number>();
  // Made once: what a hostile answer costs its agent would count as the bridge's time.
  const parts = new Map(Object.values(behaviours).map((one) => [one, JSON.stringify(partsOf(one))]));
  let polls = 0;
  const taskOf = (behaviour: AgentBehaviour, id: string) => {
    const task = (state: string, rest: object = {}) => ({ id, contextId: id, status: { state, ...rest } });
    polls += 1;
    if (behaviour.kind === "never-done") return task("TASK_STATE_WORKING", said(`step ${polls}`));
    if (behaviour.kind === "input_required")
      return task("TASK_STATE_INPUT_REQUIRED", said(`Which one, ${polls}?`));
    if (performance.now() < (readyAt.get(id) ?? 0)) return task("TASK_STATE_WORKING");
    readyAt.delete(id);
    const artifacts = [{ artifactId: "answer", parts: [{ text: "yes" }] }];
    return { ...task("TASK_STATE_COMPLETED"), artifacts };
  };
  const answer = (behaviour: AgentBehaviour, call: Call, response: ServerResponse) => {
    const result = (value: object) => sendJson(response, { jsonrpc: "2.0", id: call.id, result: value });
    if (behaviour.kind === "hang") return;
    if (behaviour.kind === "away") return void response.writeHead(503).end();
    if (behaviour.kind === "endless") return writeWithoutEnd(response);
    if (call.params.message === undefined) return result(taskOf(behaviour, call.params.id ?? ""));
    const id = systemRandom.bytes(8).toString("hex");
    if (behaviour.kind === "task") readyAt.set(id, performance.now() + behaviour.ms);
    if (["task", "never-done", "input_required"].includes(behaviour.kind))
      return result({ task: taskOf(behaviour, id) });
    const head = JSON.stringify({ jsonrpc: "2.0", id: call.id }).slice(0, -1);
    const message = `{"messageId":"${id}","role":"ROLE_AGENT","parts":${parts.get(behaviour)}}`;
    response.writeHead(200, { "content-type": "application/json" });
    response.end(`${head},"result":{"message":${message}}}`);
  };
  const server = await listen((request, body, response) => {
    const name = (request.url ?? "").split("/")[1] ?? "";
    const behaviour = behaviours[name];
    const card = cards.get(name);
    if (behaviour === undefined || card === undefined) return void response.writeHead(404).end();
    if (request.method === "GET") {
      response.writeHead(200, { "content-type": "application/json" }).end(card);
      return;
    }
    const call = JSON.parse(body) as Call;
    const question = call.params.message?.parts[0]?.text;
    if (question !== undefined) onQuestion(question);
    answer(behaviour, call, response);
  });
  for (const name of Object.keys(behaviours)) {
    const url = `${server.url}/${name}/rpc`;
    const supportedInterfaces = [{ url, protocolBinding: "JSONRPC", protocolVersion: "1.0" }];
    cards.set(name, bytesOf(signedCard(key, { ...minimalCard(), name, version: "1", supportedInterfaces })));
  }
  return { ...server, key };
}

const said = (text: string) => ({
  message: { messageId: text, role: "ROLE_AGENT", parts: [{ text }] },
});

function partsOf(behaviour: AgentBehaviour): readonly { readonly text: string }[] {
  if (behaviour.kind === "wide-table") {
    const row = (cell: string) => `|${`${cell}|`.repeat(behaviour.cells)}\n`;
    return [{ text: row("a") + row("-") + row("b") }];
  }
  if (behaviour.kind === "empty-parts") return Array.from({ length: behaviour.parts }, () => ({ text: "" }));
  return [{ text: "yes" }];
}

function writeWithoutEnd(response: ServerResponse): void {
  response.writeHead(200, { "content-type": "application/json" });
  const chunk = Buffer.alloc(64 * 1024, 32);
  const write = () => {
    while (!response.destroyed && response.write(chunk));
  };
  response.on("drain", write);
  write();
}
