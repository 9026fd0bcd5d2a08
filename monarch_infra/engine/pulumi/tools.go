//go:build tools

// Package tools keeps the engine's command among the requirements of go.mod.
package tools

import _ "github.com/pulumi/pulumi/pkg/v3/cmd/pulumi"
