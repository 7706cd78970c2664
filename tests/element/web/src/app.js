// Starts MatrixChat, after the platform, the theme and the strings that it needs.

import BasePlatform from "matrix-react-sdk/lib/BasePlatform";
import MatrixChat from "matrix-react-sdk/lib/components/structures/MatrixChat";
import * as languageHandler from "matrix-react-sdk/lib/languageHandler";
import PlatformPeg from "matrix-react-sdk/lib/PlatformPeg";
import SdkConfig from "matrix-react-sdk/lib/SdkConfig";
import { SettingLevel } from "matrix-react-sdk/lib/settings/SettingLevel";
import SettingsStore from "matrix-react-sdk/lib/settings/SettingsStore";
import { setTheme } from "matrix-react-sdk/lib/theme";
import React from "react";
import ReactDOM from "react-dom";

const DEVICE_NAME = "Element in a test browser";

class Platform extends BasePlatform {
  getHumanReadableName() {
    return "Test Platform";
  }
  async getConfig() {
    return {};
  }
  getDefaultDeviceDisplayName() {
    return DEVICE_NAME;
  }
  async requestNotificationPermission() {
    return "denied";
  }
  async getAppVersion() {
    return "3.114.0";
  }
  reload() {
    window.location.reload();
  }
  supportsNotifications() {
    return false;
  }
  maySendNotifications() {
    return false;
  }
}

function screenOf(hash) {
  const [path, params] = hash.replace(/^#\/?/, "").split("?");
  return { screen: path, params: Object.fromEntries(new URLSearchParams(params ?? "")) };
}

export async function start() {
  PlatformPeg.set(new Platform());
  await languageHandler.setLanguage(["en"]);
  await SettingsStore.setValue("use_system_theme", null, SettingLevel.DEVICE, false);
  await SettingsStore.setValue("theme", null, SettingLevel.DEVICE, "light");
  await setTheme();

  let chat = null;
  let shown = window.location.hash;
  window.addEventListener("hashchange", () => {
    if (shown === window.location.hash) return;
    const { screen, params } = screenOf(window.location.hash);
    chat?.showScreen(screen, params);
  });
  const first = screenOf(window.location.hash);
  ReactDOM.render(
    React.createElement(MatrixChat, {
      ref: (r) => {
        chat = window.matrixChat = r ?? chat;
      },
      onNewScreen: (screen, replaceLast) => {
        shown = `#/${screen}`;
        if (replaceLast) window.location.replace(shown);
        else window.location.assign(shown);
      },
      config: SdkConfig.get(),
      realQueryParams: {},
      startingFragmentQueryParams: first.params,
      enableGuest: false,
      onTokenLoginCompleted: () => {},
      initialScreenAfterLogin: first.screen ? first : undefined,
      defaultDeviceDisplayName: DEVICE_NAME,
    }),
    document.getElementById("matrixchat"),
  );
}
