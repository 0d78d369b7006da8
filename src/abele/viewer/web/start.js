// Where the page begins.

import { App } from "abele/core/app.js";

const app = new App(document.getElementById("app"));
globalThis.abele = app;
app.start();
