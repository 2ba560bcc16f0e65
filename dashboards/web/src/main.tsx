import { render } from "preact";
import "./style/page.css";
import { keepCauses } from "./causes";
import { keepAskingForAge } from "./fresh";
import { onKey } from "./keys";
import { keepListening } from "./live";
import { Shell } from "./shell";

addEventListener("keydown", onKey);
void keepListening();
keepAskingForAge();
keepCauses();
const place = document.getElementById("app");
if (place) render(<Shell />, place);
