// Type-aware rules: a promise that nobody waits for and an answer of type `any` are the mistakes made here.
import eslint from "@eslint/js";
import { defineConfig } from "eslint/config";
import tseslint from "typescript-eslint";

export default defineConfig(eslint.configs.recommended, tseslint.configs.strictTypeChecked, {
  languageOptions: { parserOptions: { projectService: true, tsconfigRootDir: import.meta.dirname } },
  rules: {
    "@typescript-eslint/no-unused-vars": ["error", { argsIgnorePattern: "^_", varsIgnorePattern: "^_" }],
    "@typescript-eslint/no-confusing-void-expression": ["error", { ignoreArrowShorthand: true }],
    "@typescript-eslint/no-floating-promises": [
      "error",
      { allowForKnownSafeCalls: [{ from: "package", name: "test", package: "node:test" }] },
    ],
    // vscode's Disposable is a class by name, and an interface by use.
    "@typescript-eslint/no-unsafe-class-instance-assignment": "off",
    "@typescript-eslint/restrict-template-expressions": ["error", { allowNumber: true }],
    "max-lines-per-function": ["error", 60],
  },
});
