// Who signs: a PKCS #8 key in a file, or a program that holds the key elsewhere (an HSM, a KMS).
// Invariants: a private key is read when it signs and never copied or kept; what an external program
// returns is checked against the public key before it is used.
import { spawn } from "node:child_process";
import { createPrivateKey, createPublicKey, type KeyObject, sign, verify } from "node:crypto";
import { readFileSync } from "node:fs";
import { DrawbridgeError } from "../../domain/errors.ts";
import { keyIdOf, type RecordKey } from "../public-key.ts";

export interface Signer {
  readonly keyId: string;
  /** An ECDSA P-256 signature with SHA-256 over `data`, in DER form (RFC 3279, section 2.2.3). */
  sign(data: Uint8Array): Promise<Buffer>;
}

const COMMAND_TIMEOUT_MS = 60_000;
const SIGNATURE_BYTES_MAX = 512;

/**
 * Signs with a PKCS #8 PEM file.
 * @throws DrawbridgeError `secret_unavailable` when it cannot be read or is no P-256 private key
 */
export function fileSigner(file: string): Signer {
  const keyId = keyIdOf(createPublicKey(readPrivateKey(file)));
  return {
    keyId,
    sign: async (data) => {
      const key = readPrivateKey(file);
      if (keyIdOf(createPublicKey(key)) !== keyId) {
        throw new DrawbridgeError("secret_unavailable", `the key in ${file} was exchanged meanwhile`, {
          mend: "Run the command again if that was meant.",
        });
      }
      return sign("sha256", data, { key, dsaEncoding: "der" });
    },
  };
}

function readPrivateKey(file: string): KeyObject {
  try {
    const key = createPrivateKey({ key: readFileSync(file), format: "pem" });
    if (key.asymmetricKeyType === "ec" && key.asymmetricKeyDetails?.namedCurve === "prime256v1") return key;
  } catch {
    // Told below, without what the file holds.
  }
  throw new DrawbridgeError("secret_unavailable", `${file} holds no P-256 private key in PKCS #8 PEM`, {
    mend: "Make one with `drawbridge records keygen`, readable by this user alone.",
  });
}

/**
 * Signs with a program: it gets the bytes to sign on standard input and writes the DER signature, raw, to
 * standard output.
 * @param command program and arguments, run without a shell
 */
export function commandSigner(command: readonly string[], publicKey: RecordKey): Signer {
  return {
    keyId: publicKey.keyId,
    sign: async (data) => {
      const signature = await run(command, data);
      if (!verify("sha256", data, { key: publicKey.key, dsaEncoding: "der" }, signature)) {
        throw refused(command, "its signature does not verify with the public key it is configured with");
      }
      return signature;
    },
  };
}

function refused(command: readonly string[], why: string): DrawbridgeError {
  return new DrawbridgeError("program_failed", `the signer ${command[0] ?? ""}: ${why}`, {
    mend: "Run it by hand with some bytes on its standard input; it must write the DER signature and exit 0.",
  });
}

function run(command: readonly string[], data: Uint8Array): Promise<Buffer> {
  const [program = "", ...args] = command;
  return new Promise((resolve, reject) => {
    const child = spawn(program, args, {
      stdio: ["pipe", "pipe", "inherit"],
      timeout: COMMAND_TIMEOUT_MS,
      killSignal: "SIGKILL",
    });
    const chunks: Buffer[] = [];
    let length = 0;
    child.once("error", () => reject(refused(command, "it cannot be started")));
    child.stdout.on("data", (chunk: Buffer) => {
      length += chunk.length;
      if (length <= SIGNATURE_BYTES_MAX) chunks.push(chunk);
    });
    child.once("close", (code, signal) => {
      if (code !== 0) reject(refused(command, `it ended with ${signal ?? `exit code ${code}`}`));
      else if (length === 0 || length > SIGNATURE_BYTES_MAX)
        reject(refused(command, "it wrote no signature"));
      else resolve(Buffer.concat(chunks));
    });
    // A program that ends without reading is told by its exit code.
    child.stdin.on("error", () => undefined);
    child.stdin.end(data);
  });
}
