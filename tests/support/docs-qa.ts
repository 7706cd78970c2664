// A docs-qa agent for tests: the real one, on a free port, answering from a few documents or from a
// function that the test holds.
import { join } from "node:path";
import type { TestContext } from "node:test";
import { AgentCard } from "@a2a-js/sdk";
import {
  type Client,
  ClientFactory,
  JsonRpcTransportFactory,
  RestTransportFactory,
} from "@a2a-js/sdk/client";
import { type RunningAgent, startAgent } from "../../examples/docs-qa/agent.ts";
import { loadDocsQaConfig } from "../../examples/docs-qa/config.ts";
import type { Answer } from "../../examples/docs-qa/skills/answer.ts";
import { freePort } from "../../lab/ports.ts";
import { generateCardKey } from "../../src/cards/sign.ts";
import { systemClock } from "../../src/domain/clock.ts";
import { recordedLog } from "./recorded-log.ts";
import { temporaryFolder, writeFile } from "./temporary.ts";

export interface TestAgent {
  readonly url: string;
  readonly folder: string;
  readonly publicJwk: { readonly x: string; readonly y: string };
  log(): string;
  /** A client of the SDK as this caller, as the gateway would name it. */
  client(caller: string, binding?: "JSONRPC" | "HTTP+JSON"): Promise<Client>;
  stop(): Promise<void>;
  start(): Promise<void>;
}

export async function testAgent(
  t: TestContext,
  options: { answer?: Answer; publicUrl?: string; surveyTime?: string } = {},
): Promise<TestAgent> {
  const folder = temporaryFolder(t);
  const port = await freePort();
  const url = `http://127.0.0.1:${port}/`;
  const key = await generateCardKey("docs-qa-1");
  writeFile(join(folder, "secrets/card.jwk"), key.privateJwk, 0o600);
  writeFile(join(folder, "docs/tea.md"), "# Tea\n## Green tea\nGreen tea is steeped for two minutes.\n");
  writeFile(join(folder, "docs/coffee.md"), "# Coffee\n## Filter coffee\nWater of 94 degrees.\n");
  writeFile(
    join(folder, "docs-qa.yaml"),
    `version: 1
listen: {port: ${port}}
name: docs-qa
description: Answers from a folder of documents.
organisation: org A
documents: docs
publicUrl: ${options.publicUrl ?? url}
httpJson: true
surveyTime: ${options.surveyTime ?? "200ms"}
signing: {keyId: docs-qa-1, key: {file: secrets/card.jwk}}
`,
  );
  const recorded = recordedLog();
  const config = loadDocsQaConfig(join(folder, "docs-qa.yaml"));
  let running: RunningAgent | undefined;
  const agent: TestAgent = {
    url,
    folder,
    publicJwk: key.publicJwk,
    log: recorded.text,
    start: async () => {
      const { answer } = options;
      running = await startAgent(config, {
        clock: systemClock,
        log: recorded.log,
        ...(answer && { answer }),
      });
    },
    stop: async () => {
      await running?.close();
      running = undefined;
    },
    client: async (caller, binding = "JSONRPC") => {
      const fetchImpl: typeof fetch = (input, init) => {
        const headers = new Headers(init?.headers);
        headers.set("x-azp", caller);
        headers.set("connection", "close");
        return fetch(input, { ...init, headers });
      };
      const factory = new ClientFactory({
        transports: [new JsonRpcTransportFactory({ fetchImpl }), new RestTransportFactory({ fetchImpl })],
        preferredTransports: [binding],
      });
      const card = AgentCard.fromJSON(await (await fetch(`${url}.well-known/agent-card.json`)).json());
      for (const one of card.supportedInterfaces) one.url = url;
      return factory.createFromAgentCard(card);
    },
  };
  await agent.start();
  t.after(() => agent.stop());
  return agent;
}
