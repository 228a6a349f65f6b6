import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError } from "../api.ts";
import { t } from "../messages.ts";
import { api } from "../session.ts";
import { Field } from "./dialog.tsx";

/** reason: why the form is shown, if the user does not expect it. */
export function SignInForm({ onDone, reason = "" }: { onDone: () => void; reason?: string }) {
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => input.current?.focus(), []);
  const [token, setToken] = useState("");
  const [trouble, setTrouble] = useState(reason);
  const [isBusy, setBusy] = useState(false);
  const submit = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    setTrouble("");
    try {
      await api.send("POST", "/session", { token: token.trim() });
      onDone();
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      setTrouble(error.message || t.unreachable);
    } finally {
      setBusy(false);
    }
  };
  return (
    <form class="sign-in card" onSubmit={(event) => void submit(event)}>
      <h1>{t.signIn.title}</h1>
      <p>{t.signIn.text}</p>
      <Field label={t.signIn.token}>
        <input ref={input} type="password" autocomplete="current-password" required value={token} onInput={(event) => setToken(event.currentTarget.value)} />
      </Field>
      {trouble && <p class="trouble" role="alert">{trouble}</p>}
      <button class="primary" type="submit" disabled={isBusy}>{t.signIn.action}</button>
    </form>
  );
}
