import { SignInForm } from "../components/sign-in.tsx";
import { t } from "../messages.ts";
import { router } from "../session.ts";

export function LoginPage() {
  return (
    <main class="login">
      <SignInForm reason={router.location.value.query.has("refused") ? t.signIn.refused : ""} onDone={() => window.location.replace(router.base)} />
    </main>
  );
}
