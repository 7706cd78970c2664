// The rooms plane in a process of its own, so that it can be killed in the middle. Its one argument is JSON:
// the server, the operator's token, the plane's folder and the intent.
import type { FederatedServer } from "./federation.ts";
import { roomsDeployment } from "./rooms-deployment.ts";

const { server, operatorToken, folder, intent } = JSON.parse(process.argv[2] ?? "") as {
  server: FederatedServer;
  operatorToken: string;
  folder: string;
  intent: unknown;
};
process.stdout.write(JSON.stringify(await roomsDeployment(server, operatorToken, folder).apply(intent)));
