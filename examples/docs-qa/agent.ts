// Puts documents, card, tasks and server together.
// Invariant: tasks that an earlier run left unfinished are finished before the server listens.
import { once } from "node:events";
import { AgentCard } from "@a2a-js/sdk";
import { DefaultRequestHandler } from "@a2a-js/sdk/server";
import type { Logger } from "pino";
import { type Clock, systemRandom } from "../../src/domain/clock.ts";
import { closeServer } from "../../src/runtime/http.ts";
import { describeAgent, prepareCard } from "./card.ts";
import type { DocsQaConfig } from "./config.ts";
import { answerFromFiles, composeAnswer } from "./search/answer.ts";
import { readDocuments } from "./search/documents.ts";
import { DocumentSearch } from "./search/search.ts";
import { createAgentServer } from "./server.ts";
import { type Answer, answerSkill, fileSkill } from "./skills/answer.ts";
import { selectingSkill } from "./skills/catalogue.ts";
import { chooseSkill } from "./skills/choose.ts";
import type { Skill } from "./skills/skill.ts";
import { surveySkill } from "./skills/survey.ts";
import { SkillExecutor } from "./task/executor.ts";
import { IdempotentHandler } from "./task/idempotent-handler.ts";
import { DurableTaskStore } from "./task/store.ts";
import { TaskFiles } from "./task/task-files.ts";

export interface AgentOptions {
  readonly clock: Clock;
  readonly log: Logger;
  /** How a question is answered; from the documents when absent. */
  readonly answer?: Answer;
}

export interface RunningAgent {
  /** Where it listens, such as `http://127.0.0.1:9100/`. */
  readonly url: string;
  close(): Promise<void>;
}

function skillOf(config: DocsQaConfig, { clock, log, answer }: AgentOptions): Skill {
  const sections = readDocuments(config.documents);
  const search = new DocumentSearch(sections);
  log.info({ event: "documents_read", sections: sections.length });
  const { organisation, surveyTime } = config;
  const fromDocuments: Answer = async (question, files) =>
    files.length === 0
      ? composeAnswer(search.find(question), `the documents of ${organisation} do`)
      : answerFromFiles(question, files);
  return selectingSkill({
    "answer-from-documents": answerSkill(answer ?? fromDocuments),
    "answer-as-file": fileSkill(answer ?? fromDocuments),
    "choose-section": chooseSkill(search, organisation),
    "survey-documents": surveySkill({ sections, organisation, durationMs: surveyTime, clock }),
  });
}

async function finishLeftovers(store: DurableTaskStore, executor: SkillExecutor, log: Logger): Promise<void> {
  for (const { scope, task } of store.unfinished()) {
    await store.saveFor(scope, await executor.finish(task));
    log.info({ event: "task_resumed", taskId: task.id });
  }
}

/**
 * Starts the agent.
 * @throws DrawbridgeError when its documents, its key or its stored tasks cannot be used
 */
export async function startAgent(config: DocsQaConfig, options: AgentOptions): Promise<RunningAgent> {
  const { clock, log } = options;
  const storedCard = await prepareCard(config);
  const card = AgentCard.fromJSON(describeAgent(config));
  const files = new TaskFiles(config.store);
  const store = new DurableTaskStore({ files, clock, retentionMs: config.retention });
  const executor = new SkillExecutor({ skill: skillOf(config, options), clock, random: systemRandom, log });
  await finishLeftovers(store, executor, log);

  const handler = new IdempotentHandler(new DefaultRequestHandler(card, store, executor), store);
  const server = createAgentServer({ card, storedCard, handler, httpJson: config.httpJson, log });
  server.listen(config.listen.port, config.listen.host);
  await once(server, "listening");
  return {
    url: `http://${config.listen.host}:${config.listen.port}/`,
    close: async () => {
      await closeServer(server, clock);
      await store.flush();
    },
  };
}
