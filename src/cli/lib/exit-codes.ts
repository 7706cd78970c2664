// The exit codes of every command. Invariant: a failure's exit code says its class.
import { DrawbridgeError, type ErrorCode } from "../../domain/errors.ts";

export const ExitCode = {
  ok: 0,
  failed: 1,
  usage: 2,
  unavailable: 3,
  refused: 4,
  incomplete: 5,
  unilateral: 6,
  waiting: 7,
} as const;
/** How a command ends. */
export type Ending = keyof typeof ExitCode;

export const EXIT_CODES_HELP = `
Exit codes:
  0  done, and the answer is yes
  1  failed, or the answer is no
  2  the command line, a configuration file, a secret or the repository is wrong; nothing was done
  3  a server that is needed could not be reached, or refused
  4  what the repository holds is refused; what was in force before stays in force
  5  done as far as it goes; what is left is named
  6  a record of a removal to which the partner has contributed nothing
  7  all that can be done now is done; the other organisation has to act`;

/** Of the codes that do not just mean that the command failed. */
const ENDING_BY_ERROR: Readonly<Partial<Record<ErrorCode, Ending>>> = {
  config_invalid: "usage",
  config_unreadable: "usage",
  secret_unavailable: "usage",
  repository_unusable: "usage",
  usage: "usage",
  database_unavailable: "unavailable",
  homeserver_refused: "unavailable",
  homeserver_unavailable: "unavailable",
  token_refused: "unavailable",
  agent_unavailable: "unavailable",
  gateway_refused: "unavailable",
  issuer_unavailable: "unavailable",
  device_unavailable: "unavailable",
  head_refused: "refused",
  guard_refused: "refused",
};

export function endingOf(error: unknown): Ending {
  return (error instanceof DrawbridgeError ? ENDING_BY_ERROR[error.code] : undefined) ?? "failed";
}
