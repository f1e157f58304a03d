;;; Driven by test_emacs.py: uses aotlens.el on a script as a person does, and prints what Emacs then shows.
;;; From the environment: AOTLENS_CMD (words split at |), AOTLENS_FILE, AOTLENS_TEXT (of the finding).

(require 'package)
(package-initialize)
(setq eglot-autoshutdown t eglot-sync-connect 30 make-backup-files nil)
(require 'aotlens)
(require 'flymake)
(setq aotlens-command (split-string (getenv "AOTLENS_CMD") "|"))

(defun say (label text)
  (princ (format "%s %s\n" label (replace-regexp-in-string "\n" "\\n" text t t))))

(defun wait-for (what condition)
  (let ((end (+ (float-time) 120)))
    (while (not (funcall condition))
      (when (> (float-time) end)
        (error "Waited in vain for %s" what))
      (accept-process-output nil 0.05))))

(find-file (getenv "AOTLENS_FILE"))
(python-mode)
(apply #'eglot--connect (eglot--guess-contact))
(unless eglot--managed-mode (eglot--managed-mode 1))
(wait-for "the server" #'eglot-current-server)

;; A trace, asked for by the command.
(let (traced)
  (advice-add 'aotlens--tell :before (lambda (answer) (setq traced answer)))
  (aotlens-trace)
  (wait-for "the trace" (lambda () traced))
  (say "TRACED" (mapconcat #'identity (plist-get traced :targets) " ")))
(wait-for "diagnostics" (lambda () (flymake-start nil) (accept-process-output nil 0.2) (flymake-diagnostics)))
(dolist (one (flymake-diagnostics))
  (say "DIAGNOSTIC" (format "%d %s" (line-number-at-pos (flymake-diagnostic-beg one)) (flymake-diagnostic-text one))))

;; The hover of the finding's expression.
(goto-char (point-min))
(search-forward (getenv "AOTLENS_TEXT"))
(backward-char 2)
(let* ((answer (jsonrpc-request (eglot-current-server) :textDocument/hover (eglot--TextDocumentPositionParams)))
       (contents (plist-get answer :contents)))
  (say "HOVER" (substring-no-properties (eglot--format-markup contents))))

;; The code actions of that place.
(let ((actions (jsonrpc-request
                (eglot-current-server) :textDocument/codeAction
                (list :textDocument (eglot--TextDocumentIdentifier)
                      :range (list :start (eglot--pos-to-lsp-position) :end (eglot--pos-to-lsp-position))
                      :context '(:diagnostics [])))))
  (say "ACTIONS" (mapconcat (lambda (action) (plist-get action :title)) actions "; ")))

;; A graph, which newer versions of Eglot open themselves, a moment later.
(let ((file (current-buffer)))
  (aotlens-show (caar (aotlens--targets)) "forward")
  (wait-for "the graph" (lambda () (not (eq (window-buffer) file))))
  (with-current-buffer (window-buffer)
    (say "GRAPH" (buffer-substring-no-properties (line-beginning-position) (line-end-position)))
    (say "MODES" (format "%o" (file-modes buffer-file-name))))
  (say "PARTS" (with-current-buffer file
                 (mapconcat #'identity (plist-get (cdar (aotlens--targets)) :parts) " ")))
  (with-current-buffer file
    (jsonrpc-request (eglot-current-server) :shutdown nil)))
(kill-emacs 0)
