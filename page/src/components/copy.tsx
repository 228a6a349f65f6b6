import { useState } from "preact/hooks";
import { t } from "../messages.ts";
import { Icon } from "./icon.tsx";

export function CopyButton({ text, label }: { text: string; label?: string }) {
  const [isDone, setDone] = useState(false);
  const copy = async () => {
    await navigator.clipboard.writeText(text);
    setDone(true);
    window.setTimeout(() => setDone(false), 1500);
  };
  const name = isDone ? t.copied : label ?? t.copy;
  return (
    <button class="quiet square" title={name} aria-label={name} onClick={() => void copy()}>
      <Icon name={isDone ? "succeeded" : "copy"} />
    </button>
  );
}
