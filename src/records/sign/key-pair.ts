// Making the key pair that an organisation signs its records with.
// Invariants: the private key is readable by this user alone from its first byte; no file is overwritten;
// either both files are there afterwards or none.
import { generateKeyPairSync } from "node:crypto";
import { existsSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { DrawbridgeError } from "../../domain/errors.ts";
import { createPrivateFile } from "../../runtime/write-file.ts";
import { keyIdOf } from "../format/ecdsa-p256.ts";

/**
 * @returns the files: PKCS #8 PEM of mode 0600, and SubjectPublicKeyInfo PEM for partners and auditors
 * @throws DrawbridgeError `usage` when a file is there already or cannot be written
 */
export function createKeyPair(folder: string) {
  const privateKeyFile = join(folder, "records-key.pem");
  const publicKeyFile = join(folder, "records-key.pub.pem");
  for (const file of [privateKeyFile, publicKeyFile]) {
    if (existsSync(file)) throw refused(file, "EEXIST");
  }
  const { privateKey, publicKey } = generateKeyPairSync("ec", { namedCurve: "prime256v1" });
  createPrivateFile(privateKeyFile, privateKey.export({ type: "pkcs8", format: "pem" }).toString());
  try {
    const pem = publicKey.export({ type: "spki", format: "pem" }).toString();
    writeFileSync(publicKeyFile, pem, { mode: 0o644, flag: "wx" });
  } catch (cause) {
    rmSync(privateKeyFile, { force: true });
    throw refused(publicKeyFile, (cause as NodeJS.ErrnoException).code ?? "unknown error");
  }
  return { keyId: keyIdOf(publicKey), privateKeyFile, publicKeyFile };
}

function refused(file: string, code: string): DrawbridgeError {
  return new DrawbridgeError("usage", `cannot write ${file}: ${code}`, {
    hint: code === "EEXIST" ? "Name another folder: a key is never overwritten." : "Name another folder.",
  });
}
