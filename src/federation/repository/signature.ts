// Who signed a commit: git's own SSH signatures against a list of allowed signers (ssh-keygen(1)).
// Invariant: no signature, another format, an unknown key, or a key outside its dates is not allowed.
import { accessSync, constants } from "node:fs";
import { git } from "./git.ts";
import type { Repository, Revision } from "./repository.ts";

/** Whether a commit is signed by a key that the allowed signers file lists for git. */
export async function isSignedByAllowed(
  repository: Repository,
  revision: Revision,
  allowedSignersFile: string,
): Promise<boolean> {
  const answer = await git(
    ["verify-commit", "--raw", revision],
    repository.call({
      settings: [`gpg.ssh.allowedSignersFile=${allowedSignersFile}`, "gpg.minTrustLevel=fully"],
    }),
  );
  return answer.code === 0;
}

/** Whether the list of allowed signers can be read; without it no commit counts as signed. */
export function canReadSigners(allowedSignersFile: string): boolean {
  try {
    accessSync(allowedSignersFile, constants.R_OK);
    return true;
  } catch {
    return false;
  }
}
