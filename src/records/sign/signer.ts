// Signing a statement, with a PKCS #8 key in a file or a program that holds the key elsewhere (an HSM, a KMS).
// Invariants: a private key is read when it signs and never kept; what a program returns is checked against the public
// key; a signature is added to exactly the bytes that the first one is over, in the one form that records have.
import { spawnSync } from "node:child_process";
import { createPrivateKey, createPublicKey, generateKeyPairSync, sign, verify } from "node:crypto";
import { rmSync } from "node:fs";
import { join } from "node:path";
import { DrawbridgeError } from "../../domain/errors.ts";
import { readSecret } from "../../runtime/secrets.ts";
import { createFile, PUBLIC } from "../../runtime/write-file.ts";
import { type DsseEnvelope, preAuthenticationEncoding, withSignature } from "../format/dsse-envelope.ts";
import { inOneForm, inOneFormFromAny, keyIdOf, type RecordKey } from "../format/ecdsa-p256.ts";

export interface Signer {
  readonly keyId: string;
  /** A DER signature (ECDSA P-256, SHA-256) that verifies. @throws DrawbridgeError `program_failed`, `secret_unavailable` */
  sign(data: Uint8Array): Promise<Buffer>;
}

const TIMEOUT_MS = 120_000;
const SIGNATURE_BYTES_MAX = 72;

/** Signs with a PKCS #8 PEM file. @throws DrawbridgeError `secret_unavailable`: no P-256 private key, or others may read it */
export function fileSigner(file: string): Signer {
  const keyId = keyIdOf(createPublicKey(readPrivateKey(file)));
  return {
    keyId,
    sign: async (data) => {
      const key = readPrivateKey(file);
      if (keyIdOf(createPublicKey(key)) !== keyId) {
        throw new DrawbridgeError("secret_unavailable", `the key in ${file} was exchanged meanwhile`, {
          hint: "Run the command again if that was meant.",
        });
      }
      // In DER, which is the default.
      const signature = sign("sha256", data, key);
      if (!verify("sha256", data, createPublicKey(key), signature)) throw unusable(file);
      return signature;
    },
  };
}

function readPrivateKey(file: string) {
  const pem = readSecret({ file }, "");
  try {
    const key = createPrivateKey({ key: pem, format: "pem" });
    if (key.asymmetricKeyType === "ec" && key.asymmetricKeyDetails?.namedCurve === "prime256v1") return key;
  } catch {
    // Reported below, without what the file holds.
  }
  throw unusable(file);
}

function unusable(file: string): DrawbridgeError {
  return new DrawbridgeError("secret_unavailable", `${file} holds no P-256 private key in PKCS #8 PEM`, {
    hint: "Make one with `drawbridge records keygen`, readable by this user alone.",
  });
}

/** Signs with a program, run without a shell: bytes on standard input, a signature (DER, or r and s) on standard output. */
export function commandSigner(command: readonly string[], publicKey: RecordKey, timeoutMs = TIMEOUT_MS) {
  return {
    keyId: publicKey.keyId,
    sign: async (data: Uint8Array) => {
      const signature = inOneFormFromAny(run(command, data, timeoutMs));
      if (signature === undefined) throw refused(command, "what it wrote is no ECDSA P-256 signature");
      if (!publicKey.verifies(data, signature)) {
        throw refused(command, "its signature does not verify with the public key it is configured with");
      }
      return signature;
    },
  };
}

function refused(command: readonly string[], why: string): DrawbridgeError {
  return new DrawbridgeError("program_failed", `the signer ${command[0] ?? ""}: ${why}`, {
    hint: "Run it by hand with some bytes on its standard input; it must write the signature's bytes (DER, or r and s) and nothing else, and exit 0.",
  });
}

/** Blocks this process, which has nothing else to do while it signs. */
function run(command: readonly string[], input: Uint8Array, timeout: number): Buffer {
  const [program = "", ...args] = command;
  if (program === "") throw refused(command, "no program is named");
  const { status, signal, stdout, error } = spawnSync(program, args, {
    ...{ input, timeout, killSignal: "SIGKILL", maxBuffer: SIGNATURE_BYTES_MAX },
    stdio: ["pipe", "pipe", "inherit"],
  });
  const { code } = (error ?? {}) as NodeJS.ErrnoException;
  if (code === "ETIMEDOUT") throw refused(command, `it has not ended within ${timeout} ms`);
  if (code === "ENOBUFS") throw refused(command, "it wrote more than a signature");
  // A program that ends without reading is reported by its exit code.
  if (status === null && signal === null) throw refused(command, "it cannot be started");
  if (status !== 0) throw refused(command, `it ended with ${signal ?? `exit code ${status}`}`);
  if (stdout.length === 0) throw refused(command, "it wrote no signature");
  return stdout;
}

/** The DSSE envelope with the signer's signature too, in the form of records; unchanged if it has signed already. */
export async function addSignature(envelope: DsseEnvelope, signer: Signer): Promise<DsseEnvelope> {
  if (envelope.signatures.some(({ keyid }) => keyid === signer.keyId)) return envelope;
  const signed = preAuthenticationEncoding(envelope.payloadType, Buffer.from(envelope.payload, "base64"));
  const sig = inOneForm(await signer.sign(signed));
  if (sig === undefined) {
    throw new DrawbridgeError("program_failed", "the signer returned no DER signature", {
      hint: "It must write an ECDSA P-256 signature in DER form; raw r‖s is not that.",
    });
  }
  return withSignature(envelope, { keyid: signer.keyId, sig: sig.toString("base64") });
}

/** Makes a PKCS #8 file, and a public one; both or none. @throws DrawbridgeError `usage` when one is there or not writable */
export function createKeyPair(folder: string) {
  const privateKeyFile = join(folder, "records-key.pem");
  const publicKeyFile = join(folder, "records-key.pub.pem");
  const { privateKey, publicKey } = generateKeyPairSync("ec", { namedCurve: "prime256v1" });
  createFile(privateKeyFile, privateKey.export({ type: "pkcs8", format: "pem" }).toString());
  try {
    createFile(publicKeyFile, publicKey.export({ type: "spki", format: "pem" }).toString(), PUBLIC);
  } catch (error) {
    rmSync(privateKeyFile, { force: true });
    throw error;
  }
  return { keyId: keyIdOf(publicKey), privateKeyFile, publicKeyFile };
}
