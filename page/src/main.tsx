import { render } from "preact";
import "./styles.css";
import { messages } from "./messages.ts";

render(<h1>{messages.name}</h1>, document.getElementById("app") ?? document.body);
