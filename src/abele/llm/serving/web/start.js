// Where the page begins.

import { ChatPage } from "chat/page.js";

const page = new ChatPage(document.getElementById("chat"));
globalThis.abele = page;
page.start();
