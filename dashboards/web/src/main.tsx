import "./style/page.css";
import { effect } from "@preact/signals";
import { render } from "preact";
import { isPassOnly, usePass } from "./api/client";
import { keepCauses } from "./causes";
import { keepAskingForAge } from "./fresh";
import { onKey } from "./keys";
import { keepListening } from "./live";
import { route, withQuery } from "./route";
import { Shell } from "./shell";

addEventListener("keydown", onKey);
// A notice's link: what it may is kept for this tab, and not left in an address that is copied on.
effect(() => {
  const { pass } = route.value.query;
  if (!pass) return;
  usePass(pass);
  withQuery({ pass: undefined }, { replace: true });
});
// News are of all incidents.
if (!isPassOnly.value) void keepListening();
keepAskingForAge();
keepCauses();
const place = document.getElementById("app");
if (place) render(<Shell />, place);
