// drawbridge records keygen: the key by which an organisation signs its statements.
import { createKeyPair } from "../records/sign/signer.ts";
import { defineCommand, print, required } from "./lib/command.ts";

export const keygenCommand = defineCommand({
  options: [
    required("-o, --output <directory>", "where to write records-key.pem and records-key.pub.pem"),
    ["--json", "print one JSON object instead"],
  ],
  help: `
The private key is ECDSA P-256 in PKCS #8 PEM, readable by this user alone. Give the public key to the
partner and to auditors, and read the key ID to them by another way. A key is never overwritten.`,
  run(_, options) {
    const made = createKeyPair(options.output);
    const { keyId, privateKeyFile: own, publicKeyFile } = made;
    print(options, made, () => `key ID       ${keyId}\nprivate key  ${own}\npublic key   ${publicKeyFile}\n`);
  },
});
