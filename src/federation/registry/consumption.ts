// How this organisation's bridge consumes one agent: what becomes an entry of its agents.yaml.
// The lists of servers and senders may be left out; then everybody in the organisation and in every
// admitted partner may ask.
import { AgentEntry } from "../../rendered-files/agents-file.ts";

export const AgentConsumption = AgentEntry.partial({ allowedServers: true, allowedSenders: true });
