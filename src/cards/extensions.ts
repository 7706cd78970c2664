// Extension URIs that Agent Cards of this project carry (A2A 1.0, section 4.6).

/**
 * The agent keeps a message's task: a repeated `messageId` from the same caller, sent again by any method
 * and after a restart of either side, returns the first task instead of making another. A repeat with
 * other parts is refused. The caller need not activate it.
 */
export const MESSAGE_ID_IDEMPOTENCY = "urn:drawbridge:a2a:message-id-idempotency:v1";
