// The application around matrix-react-sdk, as element-web is for the Element that people use: its configuration. app.js is
// loaded only then, because some of its modules read the configuration while they load.
// Where the homeserver is comes in the query: ?hs=http://127.0.0.1:8008&name=example.org
import SdkConfig from "matrix-react-sdk/lib/SdkConfig";

const query = new URLSearchParams(window.location.search);
const hsUrl = query.get("hs") ?? "http://127.0.0.1:8008";
const hsName = query.get("name") ?? "localhost";

SdkConfig.put({
  brand: "Element",
  default_server_config: { "m.homeserver": { base_url: hsUrl, server_name: hsName } },
  validated_server_config: {
    hsUrl,
    hsName,
    hsNameIsDifferent: true,
    isUrl: undefined,
    isDefault: true,
    isNameResolvable: false,
    warning: "",
  },
  disable_guests: true,
  disable_custom_urls: true,
  disable_3pid_login: true,
  default_country_code: "GB",
  default_theme: "light",
  show_labs_settings: false,
  integrations_ui_url: null,
  integrations_rest_url: null,
  bug_report_endpoint_url: null,
  features: { feature_release_announcement: false },
  setting_defaults: { "UIFeature.feedback": false, "UIFeature.shareQrCode": false },
});

import("./app.js")
  .then((app) => app.start())
  .catch((error) => {
    console.error("shell:", error);
    document.body.dataset.failed = String(error?.stack ?? error);
  });
