// Making the key pair that an organisation signs its records with.
// Invariants: the private key is readable by this user alone from its first byte; no file is overwritten;
// either both files are there afterwards or none.
import { generateKeyPairSync } from "node:crypto";
import { rmSync } from "node:fs";
import { join } from "node:path";
import { createFile, PUBLIC } from "../../runtime/write-file.ts";
import { keyIdOf } from "../format/ecdsa-p256.ts";

/** A PKCS #8 file, and a public one for partners. @throws DrawbridgeError `usage` when one is there or not writable */
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
