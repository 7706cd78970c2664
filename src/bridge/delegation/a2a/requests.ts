// The requests the bridge makes of an agent, as the SDK's types want them (A2A 1.0, section 3).
import { type Message, type Part, Role, type SendMessageRequest } from "@a2a-js/sdk";

/** A question for an agent. */
export interface Question {
  /** Stable for the delegation: a repeated request carries the same one. */
  readonly messageId: string;
  readonly text: string;
}

const ACCEPTED_OUTPUT_MODES = ["text/markdown", "text/plain", "application/json"];

function textPart(text: string): Part {
  return {
    content: { $case: "text", value: text },
    metadata: undefined,
    filename: "",
    mediaType: "text/plain",
  };
}

/** SendMessage or SendStreamingMessage: returns as soon as a task stands, with no history in it. */
export function sendRequest(question: Question): SendMessageRequest {
  const message: Message = {
    messageId: question.messageId,
    contextId: "",
    taskId: "",
    role: Role.ROLE_USER,
    parts: [textPart(question.text)],
    metadata: undefined,
    extensions: [],
    referenceTaskIds: [],
  };
  return {
    tenant: "",
    message,
    configuration: {
      acceptedOutputModes: ACCEPTED_OUTPUT_MODES,
      taskPushNotificationConfig: undefined,
      historyLength: 0,
      returnImmediately: true,
    },
    metadata: undefined,
  };
}
