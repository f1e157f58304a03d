;;; aotlens.el --- What torch.compile does to your functions, with Eglot  -*- lexical-binding: t; -*-

;; License: BSD-3-Clause
;; Package-Requires: ((emacs "28.1") (eglot "1.9"))

;;; Commentary:

;; Loading this file makes Eglot start `aotlens lsp' for Python buffers: M-x eglot.  Diagnostics, hover and code
;; actions are Eglot's own; "Trace" on the `def' of a target is one of its code actions.  Eglot shows no code
;; lenses, so there are commands: `aotlens-trace', `aotlens-verify', `aotlens-fit', `aotlens-show', `aotlens-explain',
;; `aotlens-clear'.  Opening and editing run nothing; a trace runs the file in a process of its own.

;;; Code:

(require 'eglot)

(defgroup aotlens nil "What `torch.compile' does to Python functions." :group 'tools)

(defcustom aotlens-command '("aotlens" "lsp")
  "The command that starts the language server."
  :type '(repeat string))

(defcustom aotlens-settings '(:trace "manual")
  "The server's settings, which docs/editors.md lists."
  :type 'plist)

(defconst aotlens-time-limit 600
  "Seconds to wait for a trace; the server stops it after `timeLimitSeconds'.")

(add-to-list 'eglot-server-programs
             (cons '(python-mode python-ts-mode)
                   (lambda (&rest _)
                     (append aotlens-command (list :initializationOptions aotlens-settings)))))

(defun aotlens--uri ()
  "The address of the buffer's file, as Eglot writes it."
  (plist-get (eglot--TextDocumentIdentifier) :uri))

(defun aotlens--send (command arguments then)
  "Send COMMAND with ARGUMENTS to the server, and call THEN with its answer."
  (jsonrpc-async-request
   (eglot--current-server-or-lose) :workspace/executeCommand
   (list :command command :arguments (apply #'vector arguments))
   :timeout aotlens-time-limit
   :success-fn then
   :error-fn (lambda (failure) (message "aotlens: %s" (plist-get failure :message)))))

(defun aotlens--ask (command &rest arguments)
  "The answer of the server to COMMAND with ARGUMENTS."
  (jsonrpc-request (eglot--current-server-or-lose) :workspace/executeCommand
                   (list :command command :arguments (apply #'vector arguments))))

(defun aotlens--targets ()
  "The traced targets of the buffer's file, each with its name first."
  (mapcar (lambda (target) (cons (plist-get target :qualname) target))
          (aotlens--ask "aotlens.targets" (aotlens--uri))))

(defun aotlens--read-target ()
  "Ask for a traced target of the buffer's file."
  (let ((targets (aotlens--targets)))
    (pcase targets
      ('nil (user-error "Nothing of this file is traced: M-x aotlens-trace"))
      (`(,only) (car only))
      (_ (completing-read "Target: " targets nil t)))))

(defun aotlens--open (answer)
  "Open the document that ANSWER names, where the server did not have it opened."
  (let ((uri (plist-get answer :uri)))
    (when (and (stringp uri) (not (eq (plist-get answer :shown) t)))
      (find-file-other-window (aotlens--path uri))
      (read-only-mode 1)
      (goto-char (point-min))
      (forward-line (or (plist-get answer :line) 0)))))

(defun aotlens--path (uri)
  "The file that URI names."
  (if (fboundp 'eglot-uri-to-path) (eglot-uri-to-path uri) (eglot--uri-to-path uri)))

(defun aotlens--tell (answer)
  "Say what came of a trace, from ANSWER; the server says failures itself."
  (let ((targets (plist-get answer :targets)))
    (when targets
      (message "aotlens: traced %s" (mapconcat #'identity targets ", ")))))

;;;###autoload
(defun aotlens-trace (&optional name)
  "Trace this file, or with a prefix argument the target NAME of it."
  (interactive (list (and current-prefix-arg (read-string "Target: "))))
  (save-buffer)
  (aotlens--send "aotlens.trace" (cons (aotlens--uri) (and name (list name))) #'aotlens--tell))

;;;###autoload
(defun aotlens-verify ()
  "Trace this file, and compare the first call of each target with eager."
  (interactive)
  (save-buffer)
  (aotlens--send "aotlens.verify" (list (aotlens--uri)) #'aotlens--tell))

;;;###autoload
(defun aotlens-fit ()
  "Run this script as `aotlens fit' does, and show the memory of its training step."
  (interactive)
  (save-buffer)
  (aotlens--send "aotlens.fit" (list (aotlens--uri)) #'ignore))

;;;###autoload
(defun aotlens-show (target part)
  "Open PART of the traced TARGET: a graph, the wrapper or a kernel."
  (interactive
   (let* ((name (aotlens--read-target))
          (parts (append (plist-get (cdr (assoc name (aotlens--targets))) :parts) nil)))
     (list name (completing-read (format "Part of %s: " name) parts nil t nil nil "forward"))))
  (aotlens--open (aotlens--ask "aotlens.show" (aotlens--uri) target part)))

;;;###autoload
(defun aotlens-explain (rule)
  "Open the page of RULE, as AL101."
  (interactive "sRule: ")
  (aotlens--open (aotlens--ask "aotlens.explain" rule)))

;;;###autoload
(defun aotlens-clear ()
  "Forget every trace, and what is kept on disk."
  (interactive)
  (aotlens--send "aotlens.clear" nil #'ignore))

(provide 'aotlens)
;;; aotlens.el ends here
